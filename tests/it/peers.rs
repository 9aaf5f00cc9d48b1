//! Every row of the op table says which call of PyTorch it is timed beside, or why there is none; and samples
//! grow to calls that the ops take.
//!
//! That the calls give the same results is compared where PyTorch is: `bench ops --check`.

use std::collections::BTreeSet;

use genesis::Device;
use genesis::ops::info::{Limits, OpInfo, Peer, all};
use genesis::random::Generator;
use rayon::prelude::*;

/// What an expression may name behind a dot beside PyTorch's functions: attributes, dtypes and modules.
const ATTRIBUTES: [&str; 10] = [
    "shape",
    "dtype",
    "device",
    "float64",
    "uint8",
    "bool",
    "contiguous_format",
    "linalg",
    "numel",
    "mT",
];

/// A piece of an expression of Python.
#[derive(Clone, Debug, PartialEq)]
enum Token {
    Name(String),
    Number(String),
    Text,
    Mark(char),
}

/// The pieces of an expression; an error where a string does not end.
fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            ' ' => {}
            '\'' => {
                rest.find(|&c| c == '\'').ok_or("a string that does not end")?;
                tokens.push(Token::Text);
            }
            c if c.is_ascii_alphanumeric() || c == '_' => {
                let is_number = c.is_ascii_digit();
                let mut word = c.to_string();
                let goes_on =
                    |c: &char| c.is_ascii_alphanumeric() || *c == '_' || (is_number && *c == '.');
                while let Some(c) = rest.next_if(goes_on) {
                    word.push(c);
                    // The sign of an exponent.
                    if is_number && c == 'e' {
                        word.extend(rest.next_if(|c| *c == '-'));
                    }
                }
                tokens.push(if is_number { Token::Number(word) } else { Token::Name(word) });
            }
            c => tokens.push(Token::Mark(c)),
        }
    }
    Ok(tokens)
}

/// Whether each bracket that opens is closed by its like.
fn is_balanced(tokens: &[Token]) -> bool {
    let mut open = Vec::new();
    let closes = |token: &Token, open: &mut Vec<char>| match token {
        Token::Mark(c @ ('(' | '[')) => {
            open.push(*c);
            true
        }
        Token::Mark(')') => open.pop() == Some('('),
        Token::Mark(']') => open.pop() == Some('['),
        _ => true,
    };
    tokens.iter().all(|token| closes(token, &mut open)) && open.is_empty()
}

/// What is wrong with an expression over so many inputs.
fn problem(text: &str, inputs: usize, known: &BTreeSet<&str>) -> Option<String> {
    let tokens = match tokens(text) {
        Ok(tokens) => tokens,
        Err(error) => return Some(error),
    };
    if !is_balanced(&tokens) {
        return Some("brackets do not match".to_owned());
    }
    for (at, token) in tokens.iter().enumerate() {
        let Token::Name(name) = token else { continue };
        let before = at.checked_sub(1).and_then(|before| tokens.get(before));
        let is_argument = tokens.get(at + 1) == Some(&Token::Mark('='))
            && tokens.get(at + 2) != Some(&Token::Mark('='))
            && matches!(before, Some(Token::Mark('(' | ',')));
        if before == Some(&Token::Mark('.')) {
            if !known.contains(name.as_str()) && !ATTRIBUTES.contains(&name.as_str()) {
                return Some(format!("PyTorch has no `{name}`"));
            }
            continue;
        }
        let index = match (tokens.get(at + 1), tokens.get(at + 2)) {
            (Some(Token::Mark('[')), Some(Token::Number(index))) => index.parse().ok(),
            _ => None,
        };
        match name.as_str() {
            "x" if index.is_some_and(|index: usize| index >= inputs) => {
                return Some(format!("there are {inputs} inputs"));
            }
            "x" | "u" | "F" | "torch" | "True" | "False" | "None" => {}
            _ if is_argument => {}
            _ => return Some(format!("`{name}` is nothing that an expression may name")),
        }
    }
    let reads = tokens.contains(&Token::Name("x".to_owned()));
    (!reads).then(|| "it reads no input".to_owned())
}

fn names() -> BTreeSet<&'static str> {
    // The product of integers has no public name.
    include_str!("../parity/names.txt").lines().chain(["_int_mm"]).collect()
}

#[test]
fn every_row_names_its_peer_or_says_why_there_is_none() {
    let known = names();
    let wrong = |info: &OpInfo| {
        let inputs = info.samples.first().map_or(0, |sample| sample.len());
        match info.peer_call() {
            Ok(call) => problem(&call, inputs, &known).map(|why| format!("`{call}`: {why}")),
            Err(reason) => (reason.len() < 15).then(|| format!("`{reason}` is no reason")),
        }
    };
    let wrong: Vec<String> = all()
        .into_iter()
        .filter_map(|info| wrong(info).map(|why| format!("{}: {why}", info.name)))
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    let alone = all().iter().filter(|info| matches!(info.peer, Peer::Missing(_))).count();
    assert!(alone < 10, "{alone} rows have no peer");
}

#[test]
fn what_is_no_expression_is_found() {
    let known = names();
    let of = |text: &str| problem(text, 2, &known);
    assert_eq!(of("torch.add(x[0], x[1])"), None);
    assert_eq!(of("F.gelu(x[0], approximate='tanh')"), None);
    assert_eq!(of("torch.isclose(x[0], x[1], atol=1e-5)"), None);
    for wrong in [
        "torch.add(x[0], x[2])",
        "torch.add(x[0], x[1]",
        "torch.add(x[0], x[1)]",
        "torch.addd(x[0], x[1])",
        "F.gelu(x[0], approximate='tanh)",
        "add(x[0], x[1])",
        "torch.zeros(3)",
    ] {
        assert!(of(wrong).is_some(), "{wrong}");
    }
}

/// The calls of a row that do not work, of small sizes, even and odd.
fn refused(info: &OpInfo) -> Vec<String> {
    let Ok(growth) = info.growth() else { return vec![format!("{}: takes no sample", info.name)] };
    let limits = Limits { elements: 4096.0, flops: 1e8 };
    let mut wrong = Vec::new();
    for growth in [Some(growth), info.broadcast_growth()].into_iter().flatten() {
        for is_odd in [false, true] {
            let shapes = growth.shapes(info, &limits, is_odd);
            let inputs = info.inputs(growth.sample(), &shapes, info.dtypes[0]);
            let rng = Generator::new(0);
            let tensors: genesis::Result<Vec<_>> =
                inputs.iter().map(|input| input.draw(&input.shape, Device::Cpu, &rng)).collect();
            if let Err(error) = tensors.and_then(|tensors| (info.call)(&tensors)) {
                wrong.push(format!("{} {shapes:?}: {error}", info.name));
            }
        }
    }
    wrong
}

#[test]
fn samples_grow_to_calls_that_ops_take() {
    let wrong: Vec<String> = all().into_par_iter().flat_map_iter(refused).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn few_rows_are_of_one_size() {
    let fixed = |info: &&OpInfo| info.growth().is_ok_and(|growth| !growth.grows());
    let fixed: Vec<&str> = all().into_par_iter().filter(fixed).map(|info| info.name).collect();
    assert!(fixed.len() <= 12, "{fixed:?}");
}
