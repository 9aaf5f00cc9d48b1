//! Many clients at a time, of which some vanish and some send nonsense.
//!
//! `GENESIS_TEST_CROWD=300 cargo test -p tests crowd` lets them come for so many seconds.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use genesis::data::SampleRng;
use genesis::serve::{ServeOptions, Server};
use serde_json::json;

use super::client::{Connection, data, get, post_text};
use super::toy::{answer, eventually, rendered, start};

const CLIENTS: u64 = 64;

/// What clients did.
#[derive(Default)]
struct Done {
    answered: AtomicUsize,
    vanished: AtomicUsize,
    refused: AtomicUsize,
}

fn seconds() -> u64 {
    std::env::var("GENESIS_TEST_CROWD").ok().and_then(|text| text.parse().ok()).unwrap_or(3)
}

/// A client: asks what nobody else asks, and compares the answer.
fn client(server: &Server, number: u64, end: Instant, done: &Done) {
    let mut rng = SampleRng::new(number);
    let mut turn = 0;
    while Instant::now() < end {
        turn += 1;
        let text = format!("client {number} turn {turn} {}", "é".repeat(rng.below(30)));
        match rng.below(8) {
            0 => vanish(server, &text, rng.below(3), done),
            1 => {
                let broken = &ask(&text, false)[..rng.below(20)];
                assert_eq!(post_text(server, "/v1/chat/completions", broken).status, 400);
                done.refused.fetch_add(1, Ordering::Relaxed);
            }
            kind => {
                let mut connection = Connection::open(server.address());
                connection.post("/v1/chat/completions", &ask(&text, kind % 2 == 0));
                let response = connection.response();
                assert_eq!(response.status, 200, "{}", response.body);
                assert_eq!(content(&response.body, kind % 2 == 0), answer(&rendered(&text)));
                done.answered.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

fn ask(text: &str, stream: bool) -> String {
    let messages = json!([{"role": "user", "content": text}]);
    json!({"messages": messages, "stream": stream}).to_string()
}

/// Goes away before the answer, within the first piece, or within the request.
fn vanish(server: &Server, text: &str, when: usize, done: &Done) {
    let body = ask(&format!("slowly {text}"), true);
    let mut connection = Connection::open(server.address());
    match when {
        0 => connection.post("/v1/chat/completions", &body),
        1 => {
            connection.post("/v1/chat/completions", &body);
            connection.read_until("data: ");
        }
        _ => {
            connection.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncon");
        }
    }
    done.vanished.fetch_add(1, Ordering::Relaxed);
}

fn content(body: &str, stream: bool) -> String {
    let text = |body: &str, part: &str| {
        let value: serde_json::Value = serde_json::from_str(body).expect("JSON");
        value["choices"][0][part]["content"].as_str().unwrap_or_default().to_owned()
    };
    match stream {
        false => text(body, "message"),
        true => data(body).filter(|d| *d != "[DONE]").map(|d| text(d, "delta")).collect(),
    }
}

#[test]
fn a_crowd_gets_its_own_answers() {
    let (server, live) = start(ServeOptions { max_streams: 48, ..ServeOptions::default() });
    let end = Instant::now() + Duration::from_secs(seconds());
    let done = Done::default();
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (server, done) = (&server, &done);
            scope.spawn(move || client(server, number, end, done));
        }
    });
    let [answered, vanished, refused] =
        [&done.answered, &done.vanished, &done.refused].map(|count| count.load(Ordering::Relaxed));
    println!("{answered} answered, {vanished} vanished, {refused} refused");
    assert!(answered > 64 && vanished > 8 && refused > 8);
    eventually("every answer has ended", || live.load(Ordering::SeqCst) == 0);
    eventually("every place is free", || {
        let page = get(&server, "/metrics").body;
        ["running", "waiting"].iter().all(|w| page.contains(&format!("genesis_requests_{w} 0\n")))
            && page.contains("genesis_connections 1\n")
    });
}
