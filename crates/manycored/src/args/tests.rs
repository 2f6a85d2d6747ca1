//! Tests of command lines and their configurations.

use super::*;
use std::fs;

fn plan(words: &str) -> Result<Plan, String> {
    let args = Args::try_parse_from(format!("manycored {words}").split_whitespace());
    args.map_err(|error| error.to_string())?.plan()
}

fn addresses(plan: &Plan) -> Vec<SocketAddr> {
    plan.listeners.iter().map(|listener| listener.address).collect()
}

#[test]
fn nothing_said_means_loopback_and_memcacheds_numbers() {
    let plan = plan("").unwrap();
    assert_eq!(addresses(&plan), ["127.0.0.1:11211".parse().unwrap()]);
    assert_eq!((plan.limits.memory, plan.limits.item), (64 << 20, 1 << 20));
    assert_eq!((plan.settings.connections_max, plan.limits.evicts), (1024, true));
    assert!(plan.warnings.is_empty() && plan.socket.is_none());
}

#[test]
fn options_come_as_memcacheds_do() {
    let plan = plan(
        "-p 1234 -l 127.0.0.1,::1,127.0.0.2:99 -m 100 -I 2m -c 5 -t 3 -vv -M -F -A \
                     -R 20 -b 7 -U 0 -o idle_timeout=9,modern -n 48 --metrics 9150",
    )
    .unwrap();
    let expected = ["127.0.0.1:1234", "[::1]:1234", "127.0.0.2:99"];
    assert_eq!(addresses(&plan), expected.map(|text| text.parse().unwrap()));
    let settings = &plan.settings;
    assert_eq!((plan.limits.memory, plan.limits.item), (100 << 20, 2 << 20));
    assert_eq!((settings.threads, settings.verbosity, settings.idle_timeout), (3, 2, 9));
    assert_eq!(plan.metrics, Some("127.0.0.1:9150".parse().unwrap()));
    assert!(settings.shutdown_enabled && !settings.flush_enabled && !plan.limits.evicts);
    assert_eq!((plan.budget, plan.warnings.len()), (20, 2));
}

#[test]
fn datagrams_come_on_the_same_addresses() {
    let plan = plan("-p 0 -U 99 -l 127.0.0.1,::1").unwrap();
    assert!(plan.listeners.is_empty());
    let expected = ["127.0.0.1:99", "[::1]:99"].map(|text| text.parse().unwrap());
    assert_eq!((plan.datagrams, plan.settings.udp_port), (expected.to_vec(), 99));
}

#[test]
fn protocol_is_that_of_the_client_unless_it_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users");
    fs::write(&path, "ann:secret\n").unwrap();
    let language = |words: &str| {
        let words = words.replace("USERS", path.to_str().unwrap());
        plan(&words).map(|plan| plan.settings.language)
    };
    for (words, expected) in [
        ("", Language::Any),
        ("-B auto", Language::Any),
        ("-B ascii", Language::Text),
        ("-B binary", Language::Binary),
        ("-B binary -Y USERS", Language::Binary),
        ("-S -Y USERS", Language::Binary),
        ("-Y USERS", Language::Any),
    ] {
        assert_eq!(language(words), Ok(expected), "{words}");
    }
    assert!(language("-S -B auto -Y USERS").is_err());
}

#[test]
fn what_is_not_built_is_refused_with_a_sentence() {
    for words in
        ["-o ext_path=x", "-o ssl_ciphers=x", "-o ssl_keyformat=DER", "-o no_maxconns_fast"]
    {
        let error = plan(words).unwrap_err();
        assert!(error.contains("buil") || error.contains("refused"), "{words}: {error}");
    }
}

#[test]
fn a_files_options_count_unless_the_command_line_says_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("options");
    fs::write(&path, "threads = 3\nlisten = 127.0.0.1:5,127.0.0.1:6\nm = 99\n").unwrap();
    let read = |more: &[&str]| {
        let words = ["manycored", "--config", path.to_str().unwrap()];
        let words = words.iter().chain(more).map(OsString::from);
        Args::from_command_line(words).map(|args| args.plan().unwrap())
    };
    let plan = read(&[]).unwrap();
    assert_eq!((plan.settings.threads, plan.limits.memory), (3, 99 << 20));
    assert_eq!(plan.listeners.len(), 2);
    let plan = read(&["-m", "77", "-l", "127.0.0.1:7"]).unwrap();
    assert_eq!((plan.settings.threads, plan.limits.memory), (3, 77 << 20));
    assert_eq!(addresses(&plan), ["127.0.0.1:7".parse().unwrap()]);
    for (line, why) in [
        ("threads = many", "1 to 256 threads"),
        ("memory-limit = 0", "0 is not in"),
        ("extended = hashpower=9", "a number from 12 to 32"),
        ("listen = tag[]:127.0.0.1", "1 to 8 characters"),
    ] {
        fs::write(&path, format!("# a comment\n{line}\n")).unwrap();
        let error = read(&[]).unwrap_err().to_string();
        let place = format!("{}: line 2: '{line}'", path.display());
        assert!(error.contains(&place) && error.contains(why), "{error}");
    }
    fs::remove_file(&path).unwrap();
    assert!(read(&[]).is_err());
}

#[test]
fn what_is_wrong_is_refused() {
    for words in [
        "-o nonsense",
        "-I 1023",
        "-I 2048m",
        "-I x",
        "-t 0",
        "-t 257",
        "-m 0",
        "-c 0",
        "-Z",
        "-Z -o ssl_chain_cert=/no/such/file,ssl_key=/no/such/file",
        "-Z -o ssl_verify_mode=2",
        "-o ssl_verify_mode=x",
        "-o ssl_min_version=4",
        "-o ssl_key=x",
        "-p 70000",
        "-U 70000",
        "-U 11211 -s some.socket",
        "-U 11211 -Y /no/such/file",
        "-f 1",
        "-n 0",
        "-N 0",
        "-Z -U 11211 -o ssl_chain_cert=x,ssl_key=x",
        "-l notls:127.0.0.1",
        "-l mtls:127.0.0.1",
        "-l proto[proxy]:127.0.0.1",
        "-l proto[http]:127.0.0.1",
        "-l proto[ascii]127.0.0.1",
        "-l proto[ascii",
        "-l tag[]:127.0.0.1",
        "-l tag[ninechars]:127.0.0.1",
        "-l fooble",
        "-o no_nonsense",
        "-o no_hash_algorithm",
        "-o hash_algorithm=md5",
        "-o hash_algorithm",
        "-o hashpower=11",
        "-o hashpower",
        "-o slab_automove=3",
        "-o slab_automove_ratio=1.1",
        "-o tail_repair_time=9",
        "-o proxy_config=x",
        "-o sock_cookie_id=1",
        "-o watcher_logbuf_size",
        "-a 8",
        "-D ::",
        "-o idle_timeout=x",
        "-o get_line_max",
        "-o get_line_max=2047",
        "-o get_line_max=16777217",
        "-I 40m",
        "-l no.such.name.invalid",
        "--metrics nowhere",
        "--trace-classes gets,nonsense",
        "--trace-classes gets:0",
        "-Y /no/such/file",
        "-B nonsense",
        "-S -B ascii -Y /no/such/file",
        "--nonsense",
        "extra",
    ] {
        assert!(plan(words).is_err(), "{words}");
    }
}

#[test]
fn each_of_memcacheds_own_options_is_known() {
    for words in ["-X", "-W", "-C", "-r", "-L", "-N 2", "-n 96 -f 1.08", "-i"] {
        plan(words).unwrap_or_else(|error| panic!("{words}: {error}"));
    }
    let plain = plan("-o relaxed_privileges,no_drop_privileges,track_sizes").unwrap();
    assert!(plain.warnings.is_empty() && plain.settings.tracks_sizes);
    for name in [
        "maxconns_fast",
        "hashpower=20",
        "no_hashexpand",
        "slab_reassign",
        "slab_automove",
        "slab_automove=2",
        "slab_automove_ratio=0.5",
        "slab_automove_window=30",
        "tail_repair_time=10",
        "hash_algorithm=jenkins",
        "lru_crawler_sleep=0",
        "lru_crawler_tocrawl=9",
        "lru_maintainer",
        "hot_lru_pct=20",
        "warm_lru_pct=40",
        "hot_max_factor=0.2",
        "warm_max_factor=2.0",
        "temporary_ttl=60",
        "worker_logbuf_size=8",
        "slab_sizes=96-200",
        "slab_chunk_max=512",
        "no_inline_ascii_resp",
        "modern",
        "no_modern",
        "no_chunked_items",
        "no_slab_reassign",
        "no_slab_automove",
        "inline_ascii_resp",
        "no_lru_maintainer",
        "drop_privileges",
        "resp_obj_mem_limit",
        "read_buf_mem_limit=1",
    ] {
        let plan = plan(&format!("-o {name}")).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(plan.warnings.len(), 1, "{name}: {:?}", plan.warnings);
    }
    let limits = plan("-C").unwrap().limits;
    assert!(!limits.has_versions);
    let settings = plan("-X -W -o no_lru_crawler,watcher_logbuf_size=8").unwrap().settings;
    assert!(!settings.dump_enabled && !settings.watch_enabled && !settings.crawls);
    assert_eq!(settings.watcher_buffer, 8 << 10);
    assert!(plan("-o no_modern,lru_crawler").unwrap().settings.crawls);
}

#[test]
fn a_port_for_datagrams_alone_is_one_for_connections_too() {
    let plan = plan("-U 99").unwrap();
    assert_eq!(addresses(&plan), ["127.0.0.1:99".parse().unwrap()]);
    assert_eq!(plan.datagrams, ["127.0.0.1:99".parse().unwrap()]);
}

#[test]
fn listeners_have_protocols_and_names_of_their_own() {
    let plan = plan("-l proto[ascii]:tag[tools]:127.0.0.1:5;proto[binary]:::1,tag_a_:*").unwrap();
    let language = |at: usize| plan.listeners[at].language;
    assert_eq!(
        [language(0), language(1), language(2)],
        [Some(Language::Text), Some(Language::Binary), None]
    );
    let expected = ["127.0.0.1:5", "[::1]:11211", "0.0.0.0:11211", "[::]:11211"];
    assert_eq!(addresses(&plan), expected.map(|text| text.parse().unwrap()));
}

#[test]
fn help_names_what_programs_look_for_and_claims_nothing_else() {
    let help = Args::command().render_help().to_string();
    for name in ["sasl", "enable-ssl", "unix-socket", "no_drop_privileges"] {
        assert!(help.contains(name), "{name}");
    }
    assert!(!help.contains("ext_path") && !help.contains("proxy_config"));
}
