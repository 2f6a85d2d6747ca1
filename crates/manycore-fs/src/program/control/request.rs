//! A request: a word and its operands, separated by single spaces.

/// The longest line, with its line feed.
pub const LONGEST: usize = 1024;

/// What a client asks for. Names are as they were written: the library says whether they are valid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// `fork PARENT NAME`
    Fork { parent: String, name: String },
    /// `list`
    List,
    /// `diff NAME`
    Diff(String),
    /// `commit NAME`
    Commit(String),
    /// `abort NAME`
    Abort(String),
    /// `info`
    Info,
    /// `sync`
    Sync,
}

impl Request {
    /// Reads a line without its line feed. An error is in words for the client.
    pub fn parse(line: &[u8]) -> Result<Request, String> {
        let text =
            std::str::from_utf8(line).map_err(|_| "a request is text in UTF-8".to_owned())?;
        let words: Vec<&str> = text.split(' ').collect();
        let request = match words[..] {
            ["fork", parent, name] => Request::Fork { parent: parent.into(), name: name.into() },
            ["list"] => Request::List,
            ["diff", name] => Request::Diff(name.into()),
            ["commit", name] => Request::Commit(name.into()),
            ["abort", name] => Request::Abort(name.into()),
            ["info"] => Request::Info,
            ["sync"] => Request::Sync,
            _ => {
                let known =
                    "fork PARENT NAME, list, diff NAME, commit NAME, abort NAME, info, sync";
                return Err(format!("'{}' is none of: {known}", text.escape_debug()));
            }
        };
        if words[1..].iter().any(|name| name.is_empty()) {
            return Err("a name is empty".into());
        }
        Ok(request)
    }

    /// The line that [`parse`](Request::parse) reads, with its line feed.
    pub fn line(&self) -> String {
        match self {
            Request::Fork { parent, name } => format!("fork {parent} {name}\n"),
            Request::List => "list\n".into(),
            Request::Diff(name) => format!("diff {name}\n"),
            Request::Commit(name) => format!("commit {name}\n"),
            Request::Abort(name) => format!("abort {name}\n"),
            Request::Info => "info\n".into(),
            Request::Sync => "sync\n".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_are_written() {
        let requests = [
            Request::Fork { parent: "main".into(), name: "try1".into() },
            Request::List,
            Request::Diff("a.b-c_d".into()),
            Request::Commit("x".into()),
            Request::Abort("x".into()),
            Request::Info,
            Request::Sync,
        ];
        for request in requests {
            let line = request.line();
            assert_eq!(Request::parse(line.trim_end().as_bytes()), Ok(request));
        }
    }

    #[test]
    fn other_lines_are_refused_with_a_reason() {
        for line in [
            "",
            " ",
            "fork",
            "fork main",
            "fork main a b",
            "list all",
            "LIST",
            "diff ",
            "fork  a",
            "list\r",
            "diff a\tb c",
            "info\0",
        ] {
            assert!(Request::parse(line.as_bytes()).is_err(), "{line:?}");
        }
        assert!(Request::parse(b"diff \xFF").is_err());
    }
}
