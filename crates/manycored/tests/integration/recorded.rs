//! Every recorded conversation with memcached gets the same bytes, however it is cut into pieces.

use crate::common::binary::written;
use crate::common::{Server, binary, masked, recorded};
use manycored::session::SessionAction;

fn replies(pieces: &[&[u8]]) -> String {
    let (mut out, action) = Server::new().talk(pieces.iter().copied());
    if action == SessionAction::Close {
        out.extend_from_slice(b"<EOF>");
    }
    masked(&out)
}

#[test]
fn recorded_conversations_get_the_same_bytes() {
    let recorded = recorded();
    assert!(recorded.len() > 150, "{}", recorded.len());
    for (sent, reply) in recorded {
        let text = String::from_utf8_lossy(&sent);
        assert_eq!(replies(&[&sent]), masked(&reply), "to {text:?}");
    }
}

#[test]
fn recorded_conversations_in_pieces_get_the_same_bytes() {
    for (sent, _) in recorded().iter().filter(|(sent, _)| sent.len() < 300) {
        let whole = replies(&[sent]);
        let bytes: Vec<&[u8]> = sent.chunks(1).collect();
        assert_eq!(replies(&bytes), whole, "{:?} byte by byte", String::from_utf8_lossy(sent));
        for at in (1..sent.len()).step_by(5) {
            let (front, back) = sent.split_at(at);
            assert_eq!(replies(&[front, back]), whole, "cut at {at}");
        }
    }
}

#[test]
fn recorded_binary_conversations_get_the_same_bytes() {
    let recorded = binary::recorded();
    assert!(recorded.len() > 80, "{}", recorded.len());
    for conversation in recorded {
        let said = conversation.replayed(&Server::new());
        assert_eq!(said, conversation.replies, "to {:?}", conversation.sent);
    }
}

#[test]
fn recorded_binary_conversations_in_pieces_get_the_same_bytes() {
    let recorded = binary::recorded();
    let fixed: Vec<_> = recorded.iter().filter(|conversation| conversation.is_fixed()).collect();
    assert!(fixed.len() > 30, "{}", fixed.len());
    for conversation in fixed {
        let sent = conversation.bytes();
        for size in [1, 7, 24, 31, sent.len()] {
            let (out, action) = Server::new().talk(sent.chunks(size));
            assert_eq!(written(&out, action), conversation.replies, "in pieces of {size}");
        }
    }
}

#[test]
fn masks_hide_versions_and_nothing_else() {
    assert_eq!(masked(b"VALUE a 0 1 77\r\n5\r\nEND\r\n"), "VALUE a 0 1 #\r\n5\r\nEND\r\n");
    assert_eq!(masked(b"VALUE a 0 1\r\nHD c12 t5 cx"), "VALUE a 0 1\r\nHD # t5 cx");
}
