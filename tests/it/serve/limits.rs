//! What clients may not do: take too much, be too slow, or come without a token.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use genesis::serve::{ServeOptions, Server};
use serde_json::{Value, json};

use super::client::{Connection, get, head, post, request};
use super::toy::{CONTEXT, Toy, eventually, serve, start};

const CHAT: &str = "/v1/chat/completions";

fn ask(text: &str, stream: bool) -> Value {
    json!({"messages": [{"role": "user", "content": text}], "stream": stream})
}

#[test]
fn bodies_that_are_too_large_are_refused() {
    let (server, _) = start(ServeOptions { max_body_bytes: 1000, ..ServeOptions::default() });
    let response = post(&server, CHAT, &ask(&"a".repeat(1000), false));
    assert_eq!(response.status, 413);
    assert_eq!(response.message(), "the body has more than 1000 bytes");
    // One that does not say how large it is.
    let mut connection = Connection::open(server.address());
    let head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\n\
                content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    connection.send(head.as_bytes());
    for _ in 0..3 {
        connection.send(format!("200\r\n{}\r\n", "a".repeat(512)).as_bytes());
    }
    assert_eq!(connection.response().status, 413);
    assert_eq!(get(&server, "/health").status, 200);
}

#[test]
fn prompts_that_are_too_long_are_refused_with_both_numbers() {
    let (server, _) = start(ServeOptions::default());
    let response = post(&server, "/v1/completions", &json!({"prompt": "a".repeat(CONTEXT)}));
    assert_eq!(response.status, 400);
    assert_eq!(
        response.message(),
        "the prompt has 4096 tokens, the context has 4096 and an answer needs one at least"
    );
    assert_eq!(response.json()["error"]["code"], "context_length_exceeded");
    // An answer may be asked to be longer than there is room for: it ends where the room does.
    let body = json!({"prompt": "a".repeat(CONTEXT - 1), "max_tokens": 100});
    let reply = post(&server, "/v1/completions", &body).json();
    assert_eq!(reply["usage"]["total_tokens"], CONTEXT);
    assert_eq!(reply["choices"][0]["finish_reason"], "length");
}

#[test]
fn a_full_queue_is_told_so() {
    let options = ServeOptions { max_streams: 1, max_queue: 1, ..ServeOptions::default() };
    let (server, live) = start(options);
    let mut first = Connection::open(server.address());
    first.post(CHAT, &ask("forever slowly", true).to_string());
    assert!(first.read_until("data: "));
    let mut second = Connection::open(server.address());
    second.post(CHAT, &ask("say next", false).to_string());
    eventually("the second waits", || {
        get(&server, "/metrics").body.contains("genesis_requests_waiting 1\n")
    });
    let third = post(&server, CHAT, &ask("say more", false));
    assert_eq!((third.status, third.header("retry-after")), (429, Some("1")));
    assert_eq!(third.message(), "1 answers wait already, try again later");
    drop(first);
    assert_eq!(second.response().status, 200);
    eventually("all places are free", || live.load(Ordering::SeqCst) == 0);
    let many = post(&server, "/v1/completions", &json!({"prompt": "a", "n": 2}));
    assert_eq!(many.status, 400);
    let full = post(&server, CHAT, &ask("the engine is full", false));
    assert_eq!((full.status, full.header("retry-after")), (429, Some("1")));
}

#[test]
fn a_client_that_goes_away_cancels_its_answer() {
    let (server, live) = start(ServeOptions::default());
    for stream in [true, false] {
        let mut connection = Connection::open(server.address());
        connection.post(CHAT, &ask("forever slowly", stream).to_string());
        eventually("the answer is being made", || live.load(Ordering::SeqCst) == 1);
        // Until its first tokens were seen, which counts it as one that was begun.
        std::thread::sleep(Duration::from_millis(60));
        drop(connection);
        eventually("the answer is cancelled", || live.load(Ordering::SeqCst) == 0);
    }
    eventually("both are counted", || {
        let page = get(&server, "/metrics").body;
        ["cancelled_total 2", "requests_running 0"]
            .iter()
            .all(|line| page.contains(&format!("genesis_{line}\n")))
    });
}

#[test]
fn answers_that_take_too_long_are_ended() {
    let request_timeout = Duration::from_millis(200);
    let (server, live) = start(ServeOptions { request_timeout, ..ServeOptions::default() });
    let response = post(&server, CHAT, &ask("forever slowly", false));
    assert_eq!(response.status, 504);
    assert_eq!(response.message(), "the answer took longer than 0.2 seconds");
    let response = post(&server, CHAT, &ask("forever slowly", true));
    assert_eq!(response.status, 200);
    assert!(response.body.contains("\"code\":\"timeout\""), "{}", response.body);
    assert!(!response.body.contains("[DONE]"));
    eventually("the answers are cancelled", || live.load(Ordering::SeqCst) == 0);
}

#[test]
fn slow_clients_lose_their_connection() {
    let options = ServeOptions {
        idle_timeout: Duration::from_millis(300),
        body_timeout: Duration::from_millis(300),
        ..ServeOptions::default()
    };
    let (server, _) = start(options);
    // A head that comes byte by byte.
    let mut connection = Connection::open(server.address());
    let begun = Instant::now();
    for byte in head("GET", "/health", &[], 0).bytes() {
        if !connection.send(&[byte]) {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(connection.line(), None);
    assert!(begun.elapsed() >= Duration::from_millis(300));
    // A body that does not come.
    let mut connection = Connection::open(server.address());
    connection.send(head("POST", CHAT, &[("content-type", "application/json")], 10).as_bytes());
    assert_eq!(connection.response().status, 408);
    // An answer that takes longer than a client may be idle is not the client's fault.
    let mut connection = Connection::open(server.address());
    connection.post(CHAT, &ask("slowly say abcdefghijklmnopqrstuvwxyz", false).to_string());
    assert_eq!(connection.response().status, 200);
    // A connection is there for the next request.
    connection.post(CHAT, &ask("say again", false).to_string());
    assert_eq!(connection.response().status, 200);
    eventually("connections are closed", || {
        get(&server, "/metrics").body.contains("genesis_connections 1\n")
    });
}

#[test]
fn clients_that_stop_reading_lose_their_answer() {
    let stall_timeout = Duration::from_millis(300);
    let (server, live) = start(ServeOptions { stall_timeout, ..ServeOptions::default() });
    let mut connection = Connection::open(server.address());
    // As many answers as fill the buffers of both ends; each event is some hundred bytes.
    let prompt = "forever ".to_owned() + &"a".repeat(2000);
    let body = json!({"prompt": vec![prompt; 60], "max_tokens": 2000, "stream": true});
    connection.post("/v1/completions", &body.to_string());
    assert!(connection.read_until("data: "));
    eventually("the answers are cancelled", || {
        let page = get(&server, "/metrics").body;
        page.contains("genesis_cancelled_total 1\n") && page.contains("genesis_connections 1\n")
    });
    eventually("nothing is left", || live.load(Ordering::SeqCst) == 0);
}

#[test]
fn a_token_is_asked_for() {
    let token = Some("s3cret".to_owned());
    let (server, _) = start(ServeOptions { token, ..ServeOptions::default() });
    let with =
        |value: &str| request(&server, "GET", "/v1/models", &[("authorization", value)], "").status;
    assert_eq!(with("Bearer s3cret"), 200);
    assert_eq!(with("bearer s3cret"), 200);
    for wrong in ["Bearer s3cre", "Bearer s3crets", "Bearer ", "Basic s3cret", "s3cret", ""] {
        assert_eq!(with(wrong), 401, "{wrong:?}");
    }
    let refusal = post(&server, CHAT, &ask("a", false));
    assert_eq!((refusal.status, refusal.header("www-authenticate")), (401, Some("Bearer")));
    assert_eq!(refusal.json()["error"]["code"], "invalid_api_key");
    assert_eq!(get(&server, "/metrics").status, 401);
    assert_eq!(get(&server, "/health").status, 200);
    assert_eq!(get(&server, "/").status, 200);
    // With a token, the server may have any name.
    let headers = [("authorization", "Bearer s3cret"), ("host", "example.com")];
    assert_eq!(request(&server, "GET", "/v1/models", &headers, "").status, 200);
}

#[test]
fn pages_of_others_are_kept_out() {
    let (server, _) = start(ServeOptions::default());
    let status = |headers: &[(&str, &str)]| request(&server, "GET", "/v1/models", headers, "");
    assert_eq!(status(&[("host", "evil.example")]).status, 403);
    assert_eq!(status(&[("host", "127.0.0.1:80")]).status, 200);
    let origin = ("origin", "https://app.example");
    assert_eq!(status(&[origin]).header("access-control-allow-origin"), None);
    let allow_origin = Some("https://app.example".to_owned());
    let (server, _) = start(ServeOptions { allow_origin, ..ServeOptions::default() });
    let response = request(&server, "GET", "/v1/models", &[origin], "");
    assert_eq!(response.header("access-control-allow-origin"), Some(origin.1));
    let ask = [origin, ("access-control-request-method", "POST")];
    assert_eq!(request(&server, "OPTIONS", CHAT, &ask, "").status, 204);
    let other = request(&server, "GET", "/v1/models", &[("origin", "https://x.example")], "");
    assert_eq!(other.header("access-control-allow-origin"), None);
}

/// Stops a server, and says how long that took.
fn stop(server: Server) -> Duration {
    let begun = Instant::now();
    server.stop().expect("it ran without an error");
    begun.elapsed()
}

#[test]
fn a_server_that_ends_lets_answers_end() {
    let (server, _) = start(ServeOptions::default());
    let address = server.address();
    let mut connection = Connection::open(address);
    connection.post(CHAT, &ask("slowly say abcdefghij", true).to_string());
    assert!(connection.read_until("data: "));
    let ending = std::thread::spawn(move || stop(server));
    assert!(connection.read_until("[DONE]"));
    drop(connection);
    assert!(ending.join().expect("no panic") < Duration::from_secs(5));
    assert!(std::net::TcpStream::connect(address).is_err(), "it does not listen any more");
}

#[test]
fn a_server_that_ends_does_not_wait_forever() {
    let grace = Duration::from_millis(200);
    let toy = Toy::new();
    let live = toy.live.clone();
    let server = serve(toy, ServeOptions { grace, ..ServeOptions::default() });
    let mut connection = Connection::open(server.address());
    connection.post(CHAT, &ask("forever slowly", true).to_string());
    assert!(connection.read_until("data: "));
    let ending = std::thread::spawn(move || stop(server));
    assert!(connection.read_until("the server is shutting down"));
    assert!(ending.join().expect("no panic") < Duration::from_secs(5));
    eventually("the answer is cancelled", || live.load(Ordering::SeqCst) == 0);
}
