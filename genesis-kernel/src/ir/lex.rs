//! Cuts the text of tile IR into tokens with their places.

use std::fmt;

/// What is wrong with a text, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1, in characters.
    pub column: u32,
    /// What is wrong, lower case, no full stop.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for ParseError {}

/// A place in a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Position {
    pub(super) line: u32,
    column: u32,
}

impl Position {
    /// An error here.
    pub(super) fn error(self, message: impl Into<String>) -> ParseError {
        ParseError { line: self.line, column: self.column, message: message.into() }
    }
}

/// What a token is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum TokenKind {
    /// A name or keyword.
    Word(String),
    /// `%name`, without the `%`.
    Value(String),
    /// What starts with a digit or a minus sign: numbers, extents such as `128x64`, `-inf`.
    Number(String),
    /// A string, unescaped.
    Text(String),
    /// One of `(){}[]<>,:=*`.
    Punct(char),
    /// The end of the text.
    End,
}

impl fmt::Display for TokenKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokenKind::Word(text) | TokenKind::Number(text) => write!(f, "`{text}`"),
            TokenKind::Value(name) => write!(f, "`%{name}`"),
            TokenKind::Text(text) => write!(f, "{text:?}"),
            TokenKind::Punct(c) => write!(f, "`{c}`"),
            TokenKind::End => f.write_str("the end of the text"),
        }
    }
}

/// A token and where it starts.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) position: Position,
}

/// The tokens of a text; the last is [`TokenKind::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, ParseError> {
    let mut lexer = Lexer { chars: text.chars().collect(), at: 0, line: 1, column: 1 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_space();
        let position = Position { line: lexer.line, column: lexer.column };
        let kind = lexer.token(position)?;
        let is_end = kind == TokenKind::End;
        tokens.push(Token { kind, position });
        if is_end {
            return Ok(tokens);
        }
    }
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    line: u32,
    column: u32,
}

impl Lexer {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek(0)?;
        self.at += 1;
        if c == '\n' {
            self.line += 1;
            self.column = 1;
        } else {
            self.column += 1;
        }
        Some(c)
    }

    fn skip_space(&mut self) {
        while let Some(c) = self.peek(0) {
            if c == '/' && self.peek(1) == Some('/') {
                self.take_while(|c, _| c != '\n');
            } else if c.is_whitespace() {
                self.next();
            } else {
                return;
            }
        }
    }

    /// Takes characters while `keep` holds for the next one and the one before it.
    fn take_while(&mut self, keep: impl Fn(char, char) -> bool) -> String {
        let mut text = String::new();
        let mut previous = '\0';
        while let Some(c) = self.peek(0) {
            if !keep(c, previous) {
                break;
            }
            text.push(c);
            previous = c;
            self.next();
        }
        text
    }

    fn token(&mut self, position: Position) -> Result<TokenKind, ParseError> {
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let Some(c) = self.peek(0) else { return Ok(TokenKind::End) };
        match c {
            '%' => {
                self.next();
                // A field of a struct that a kernel takes is `%p.x`.
                let name = self.take_while(|c, _| is_name(c) || c == '.');
                if name.is_empty() {
                    return Err(position.error("expected a name after `%`"));
                }
                Ok(TokenKind::Value(name))
            }
            '"' => self.text(position),
            '-' | '0'..='9' => Ok(TokenKind::Number(self.number())),
            '(' | ')' | '{' | '}' | '[' | ']' | '<' | '>' | ',' | ':' | '=' | '*' => {
                self.next();
                Ok(TokenKind::Punct(c))
            }
            _ if is_name(c) => Ok(TokenKind::Word(self.take_while(|c, _| is_name(c)))),
            _ => Err(position.error(format!("unexpected character {c:?}"))),
        }
    }

    /// A sign may follow an exponent's `e`, but not a hexadecimal digit `e`.
    fn number(&mut self) -> String {
        let is_hex = self.peek(0) == Some('0') && self.peek(1) == Some('x');
        self.take_while(|c, previous| {
            let signs = previous == '\0' || (matches!(previous, 'e' | 'E') && !is_hex);
            c.is_ascii_alphanumeric() || c == '.' || (matches!(c, '+' | '-') && signs)
        })
    }

    fn text(&mut self, position: Position) -> Result<TokenKind, ParseError> {
        self.next();
        let mut text = String::new();
        loop {
            match self.next() {
                Some('"') => return Ok(TokenKind::Text(text)),
                Some('\\') => match self.escape() {
                    Some(c) => text.push(c),
                    None => return Err(position.error("unknown escape in this string")),
                },
                Some(c) => text.push(c),
                None => return Err(position.error("this string does not end")),
            }
        }
    }

    /// What Rust's `{:?}` writes for a string.
    fn escape(&mut self) -> Option<char> {
        Some(match self.next()? {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            '0' => '\0',
            '\\' => '\\',
            '"' => '"',
            '\'' => '\'',
            'u' if self.next()? == '{' => {
                let digits = self.take_while(|c, _| c.is_ascii_hexdigit());
                if self.next()? != '}' {
                    return None;
                }
                char::from_u32(u32::from_str_radix(&digits, 16).ok()?)?
            }
            _ => return None,
        })
    }
}
