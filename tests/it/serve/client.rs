//! The least that speaks HTTP: one request to a connection, read to its end or piece by piece.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use genesis::serve::Server;
use serde_json::Value;

/// A response.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
    pub(super) body: String,
}

impl Response {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(header, _)| header.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body)
            .unwrap_or_else(|error| panic!("{error} in {:?}", self.body))
    }

    /// What a refusal says.
    pub(super) fn message(&self) -> String {
        let body = self.json();
        body["error"]["message"].as_str().expect("a refusal has a message").to_owned()
    }

    /// The pieces of a stream; it must have ended as it should.
    pub(super) fn pieces(&self) -> Vec<Value> {
        let mut data: Vec<&str> = data(&self.body).collect();
        assert_eq!(data.pop(), Some("[DONE]"), "{:?}", self.body);
        data.into_iter().map(|piece| serde_json::from_str(piece).expect("JSON")).collect()
    }
}

/// What stands behind `data: `.
pub(super) fn data(body: &str) -> impl Iterator<Item = &str> {
    body.lines().filter_map(|line| line.strip_prefix("data: "))
}

/// A connection that was not read to its end.
pub(super) struct Connection {
    pub(super) stream: BufReader<TcpStream>,
}

impl Connection {
    pub(super) fn open(address: SocketAddr) -> Connection {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(15))).expect("a time-out");
        Connection { stream: BufReader::new(stream) }
    }

    /// Sends bytes; a server that does not want them may have gone.
    pub(super) fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.get_mut().write_all(bytes).is_ok()
    }

    pub(super) fn post(&mut self, path: &str, body: &str) {
        let head = head("POST", path, &[("content-type", "application/json")], body.len());
        self.send(&[head.as_bytes(), body.as_bytes()].concat());
    }

    /// The next line, without its end; nothing at the end of the connection.
    pub(super) fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(line.trim_end().to_owned()),
        }
    }

    /// Reads lines up to one that holds a text.
    pub(super) fn read_until(&mut self, text: &str) -> bool {
        while let Some(line) = self.line() {
            if line.contains(text) {
                return true;
            }
        }
        false
    }

    /// The response, whose body ends with its length, its last chunk, or the connection.
    pub(super) fn response(&mut self) -> Response {
        let status = self.line().expect("a status line");
        let status = status.split(' ').nth(1).and_then(|code| code.parse().ok());
        let mut headers = Vec::new();
        while let Some(line) = self.line().filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':').expect("a header");
            headers.push((name.to_owned(), value.trim().to_owned()));
        }
        let mut response =
            Response { status: status.expect("a status"), headers, body: String::new() };
        let length = response.header("content-length").and_then(|length| length.parse().ok());
        let bytes = match length {
            _ if response.status == 204 => Vec::new(),
            Some(length) => {
                let mut bytes = vec![0; length];
                self.stream.read_exact(&mut bytes).expect("a whole body");
                bytes
            }
            None => self.chunks(),
        };
        response.body = String::from_utf8(bytes).expect("UTF-8");
        response
    }

    fn chunks(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while let Some(line) = self.line() {
            let length = usize::from_str_radix(&line, 16).expect("the length of a chunk");
            let start = bytes.len();
            bytes.resize(start + length + 2, 0);
            self.stream.read_exact(&mut bytes[start..]).expect("a whole chunk");
            bytes.truncate(start + length);
            if length == 0 {
                break;
            }
        }
        bytes
    }
}

/// The head of a request.
pub(super) fn head(method: &str, path: &str, headers: &[(&str, &str)], length: usize) -> String {
    let mut head = format!("{method} {path} HTTP/1.1\r\ncontent-length: {length}\r\n");
    if !headers.iter().any(|(name, _)| *name == "host") {
        head += "host: localhost\r\n";
    }
    headers.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
    head + "\r\n"
}

/// Sends a request, and reads the response.
pub(super) fn request(
    server: &Server,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Response {
    let mut connection = Connection::open(server.address());
    let head = head(method, path, headers, body.len());
    connection.send(&[head.as_bytes(), body.as_bytes()].concat());
    connection.response()
}

pub(super) fn get(server: &Server, path: &str) -> Response {
    request(server, "GET", path, &[], "")
}

pub(super) fn post(server: &Server, path: &str, body: &Value) -> Response {
    post_text(server, path, &body.to_string())
}

pub(super) fn post_text(server: &Server, path: &str, body: &str) -> Response {
    request(server, "POST", path, &[("content-type", "application/json")], body)
}
