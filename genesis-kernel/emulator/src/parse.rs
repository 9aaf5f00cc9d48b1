//! From PTX text to a [`Program`].
//!
//! Only what code generation writes is known; another instruction is an error that names it, so that
//! nothing is emulated by a guess.

mod decode;

use std::collections::BTreeMap;

use super::program::{
    Action, Addr, Arg, Inst, LOCAL_BASE, PARAM_BASE, ParamSlot, Program, Reg, TEXT_BASE,
};

/// Why a text can't be run.
type Wrong = String;

/// The predicate that an instruction waits for, and what it must be.
type Guard = Option<(Reg, bool)>;

/// Reads the entry point of a module.
pub(super) fn parse(ptx: &str) -> Result<Program, Wrong> {
    let mut parser = Parser::default();
    let (head, body) = split(ptx)?;
    parser.header(head)?;
    parser.program.files = files(ptx);
    for statement in statements(body, head.matches('\n').count() as u32) {
        let line = statement.line;
        parser.statement(&statement).map_err(|wrong| format!("line {line} of the PTX: {wrong}"))?;
    }
    parser.finish()
}

/// A statement, and the line it ends on.
struct Statement {
    text: String,
    line: u32,
    is_label: bool,
}

/// What stands before the entry point's body, and the body.
fn split(ptx: &str) -> Result<(&str, &str), Wrong> {
    let entry = ptx.find(".entry").ok_or("there is no entry point")?;
    let open = ptx[entry..].find("\n{").ok_or("the entry point has no body")? + entry;
    Ok(ptx.split_at(open + 1))
}

/// The files that positions name.
fn files(ptx: &str) -> Vec<(u32, String)> {
    let lines = ptx.lines().filter_map(|line| line.trim().strip_prefix(".file"));
    let file = |line: &str| {
        let (number, name) = line.trim().split_once(char::is_whitespace)?;
        Some((number.parse().ok()?, name.trim().trim_matches('"').to_owned()))
    };
    lines.filter_map(file).collect()
}

/// Cuts a body into statements, without comments.
fn statements(body: &str, first_line: u32) -> Vec<Statement> {
    let mut found = Vec::new();
    let mut text = String::new();
    let mut depth = 0;
    for (line, content) in (first_line + 1..).zip(body.lines()) {
        let content = content.split("//").next().unwrap_or_default();
        let trimmed = content.trim();
        if position(trimmed).is_some() {
            found.push(Statement { text: trimmed.to_owned(), line, is_label: false });
            continue;
        }
        let mut rest = content;
        while let Some(c) = rest.chars().next() {
            rest = &rest[c.len_utf8()..];
            let ends_label = c == ':' && !rest.starts_with(':') && !text.ends_with(':');
            match c {
                ';' => push(&mut found, &mut text, line, false),
                ':' if ends_label && !text.trim().contains(char::is_whitespace) => {
                    push(&mut found, &mut text, line, true);
                }
                '{' if text.trim().is_empty() => depth += 1,
                '}' if text.trim().is_empty() => {
                    depth -= 1;
                    // Tables of lines come after the body.
                    if depth == 0 {
                        return found;
                    }
                }
                _ => text.push(c),
            }
        }
        text.push(' ');
    }
    found
}

/// What `.loc` says; `.local` is another thing.
fn position(text: &str) -> Option<&str> {
    text.strip_prefix(".loc").filter(|rest| rest.starts_with(char::is_whitespace))
}

fn push(found: &mut Vec<Statement>, text: &mut String, line: u32, is_label: bool) {
    let statement = std::mem::take(text).trim().to_owned();
    if !statement.is_empty() {
        found.push(Statement { text: statement, line, is_label });
    }
}

/// A comparison of pairs, `setp.eq.bf16x2 %p1|%p2, %r1, %r2`, as two of halves.
fn packed_compare(name: &str, operands: &str) -> Option<Vec<String>> {
    let single = name.strip_prefix("setp.")?.strip_suffix("x2")?;
    let [to, a, b] = &list(operands)[..] else { return None };
    let (low, high) = to.split_once('|')?;
    Some(vec![
        format!("mov.b32 {{%packed0, %packed1}}, {a}"),
        format!("mov.b32 {{%packed2, %packed3}}, {b}"),
        format!("setp.{single} {low}, %packed0, %packed2"),
        format!("setp.{single} {high}, %packed1, %packed3"),
    ])
}

/// Arithmetic of f32 on operands of 16 bits, `fma.rn.f32.bf16 %r1, %rs1, %rs2, %r2`, as conversions of all but the last
/// and the operation on f32.
fn mixed_precision(name: &str, operands: &str) -> Option<Vec<String>> {
    let (operation, half) = name.rsplit_once('.')?;
    let takes_halves = ["add.", "sub.", "fma."].iter().any(|verb| operation.starts_with(verb));
    if !takes_halves || !operation.ends_with(".f32") || !matches!(half, "f16" | "bf16") {
        return None;
    }
    let all = list(operands);
    let [to, halves @ .., last] = &all[..] else { return None };
    let convert = |(i, from): (usize, &String)| format!("cvt.f32.{half} %packed{i}, {from}");
    let mut parts: Vec<String> = halves.iter().enumerate().map(convert).collect();
    let wide: String = (0..halves.len()).map(|i| format!("%packed{i}, ")).collect();
    parts.push(format!("{operation} {to}, {wide}{last}"));
    Some(parts)
}

/// Bits put into others, `bfi.b32 %r1, %from, %into, 8, 16`, as a mask, a shift and a choice of both.
fn bit_insert(name: &str, operands: &str) -> Option<Vec<String>> {
    let bits: u32 = name.strip_prefix("bfi.b")?.parse().ok()?;
    let [to, from, into, start, len] = &list(operands)[..] else { return None };
    let [start, len] = [start, len].map(|number| number.parse::<u32>().ok());
    let (start, len) = (start?.min(bits), len?.min(bits));
    let ones = |n: u32| if n == 0 { 0 } else { u64::MAX >> (64 - n) };
    let mask = ones((start + len).min(bits)) & !ones(start);
    Some(vec![
        format!("shl.b{bits} %packed0, {from}, {start}"),
        format!("and.b{bits} %packed0, %packed0, {mask}"),
        format!("and.b{bits} %packed1, {into}, {}", !mask & ones(bits)),
        format!("or.b{bits} {to}, %packed0, %packed1"),
    ])
}

/// A sum or difference that gives or takes a carry, `subc.cc.s64 %rd1, %rd2, %rd3`, as several that keep
/// it in `%carry0`: 1 where the last one left the range of its unsigned operands.
fn with_carry(name: &str, operands: &str) -> Option<Vec<String>> {
    let (operation, ty) = name.rsplit_once('.')?;
    let bits = ty.strip_prefix(['s', 'u', 'b'])?;
    let (verb, takes) = match operation {
        "add.cc" => ("add", false),
        "addc" | "addc.cc" => ("add", true),
        "sub.cc" => ("sub", false),
        "subc" | "subc.cc" => ("sub", true),
        _ => return None,
    };
    let [to, a, b] = &list(operands)[..] else { return None };
    let carry = if takes { "%carry0" } else { "0" };
    // A sum has wrapped where it is less than an operand, a difference where it was of a smaller one.
    let wrapped = match verb {
        "add" => [format!("%carry2, {a}"), "%carry3, %carry2".to_owned()],
        _ => [format!("{a}, {b}"), "%carry2, %carry1".to_owned()],
    };
    let [first, second] = wrapped;
    Some(vec![
        format!("mov.b{bits} %carry1, {carry}"),
        format!("{verb}.s{bits} %carry2, {a}, {b}"),
        format!("{verb}.s{bits} %carry3, %carry2, %carry1"),
        format!("setp.lt.u{bits} %carry4, {first}"),
        format!("setp.lt.u{bits} %carry5, {second}"),
        "or.pred %carry4, %carry4, %carry5".to_owned(),
        format!("selp.b{bits} %carry0, 1, 0, %carry4"),
        format!("mov.b{bits} {to}, %carry3"),
    ])
}

#[derive(Default)]
struct Parser {
    program: Program,
    registers: BTreeMap<String, Reg>,
    labels: BTreeMap<String, usize>,
    /// Branches whose label may come later: the instruction, and the label.
    branches: Vec<(usize, String)>,
    source: Option<(u32, u32, u32)>,
    /// Names of shared memory, with where they start.
    shared: BTreeMap<String, u64>,
    /// Names of texts and of threads' own memory, with their addresses.
    symbols: BTreeMap<String, u64>,
}

impl Parser {
    fn header(&mut self, head: &str) -> Result<(), Wrong> {
        for line in head.lines().filter(|line| line.contains(".shared")) {
            let name = line.trim_end_matches(';').split_whitespace().last().unwrap_or_default();
            let name = name.split('[').next().unwrap_or_default();
            self.shared.insert(name.to_owned(), 0);
        }
        for line in head.lines().filter(|line| line.starts_with(".global")) {
            self.text(line);
        }
        let entry = head.split_once(".entry").map_or("", |(_, rest)| rest);
        let open = entry.find('(').ok_or("the entry point has no parameters")?;
        let close = entry.rfind(')').ok_or("the entry point's parameters do not end")?;
        self.program.name = entry[..open].trim().to_owned();
        let mut offset = 0;
        for param in entry[open + 1..close].split(',').filter(|p| !p.trim().is_empty()) {
            let slot = param_slot(param.trim(), offset)?;
            offset = slot.offset + slot.bytes;
            self.program.params.push(slot);
        }
        self.program.cluster = [1; 3];
        if let Some((_, rest)) = entry[close..].split_once(".reqnctapercluster") {
            let line = rest.lines().next().unwrap_or_default();
            for (extent, text) in self.program.cluster.iter_mut().zip(line.split(',')) {
                *extent = text.trim().parse().map_err(|_| "a cluster without its extents")?;
            }
        }
        Ok(())
    }

    /// `.global .align 1 .b8 name[3] = {37, 100};`: a text that ends in a nul.
    fn text(&mut self, line: &str) {
        let Some((declared, values)) = line.split_once('=') else { return };
        let name = declared.split_whitespace().last().unwrap_or_default();
        let name = name.split('[').next().unwrap_or_default();
        let values = values.split(['{', '}']).nth(1).unwrap_or_default();
        let bytes = values.split(',').map_while(|value| value.trim().parse::<u8>().ok());
        let bytes: Vec<u8> = bytes.take_while(|&byte| byte != 0).collect();
        let address = TEXT_BASE + self.program.texts.len() as u64;
        self.program.texts.push((address, String::from_utf8_lossy(&bytes).into_owned()));
        self.symbols.insert(name.to_owned(), address);
    }

    /// `.local .align 8 .b8 name[24]`
    fn local(&mut self, text: &str) -> Result<(), Wrong> {
        let last = text.split_whitespace().last().unwrap_or_default();
        let (name, count) = last.split_once('[').ok_or("local memory without a size")?;
        let bytes: usize = count.trim_end_matches(']').parse().map_err(|_| "a strange size")?;
        let start = self.program.local_bytes.next_multiple_of(16);
        self.program.local_bytes = start + bytes;
        self.symbols.insert(name.to_owned(), LOCAL_BASE + start as u64);
        Ok(())
    }

    fn statement(&mut self, statement: &Statement) -> Result<(), Wrong> {
        let text = statement.text.as_str();
        if statement.is_label {
            self.labels.insert(text.to_owned(), self.program.insts.len());
            return Ok(());
        }
        if let Some(place) = position(text) {
            let mut numbers = place.split_whitespace().map_while(|word| word.parse().ok());
            if let (Some(file), Some(line)) = (numbers.next(), numbers.next()) {
                self.source = Some((file, line, numbers.next().unwrap_or(0)));
            }
            return Ok(());
        }
        if text.starts_with('.') {
            return self.directive(text);
        }
        let (guard, text) = self.guard(text)?;
        let (name, operands) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let parts = packed_compare(name, operands)
            .or_else(|| mixed_precision(name, operands))
            .or_else(|| with_carry(name, operands))
            .or_else(|| bit_insert(name, operands));
        if let (None, Some(parts)) = (guard, parts) {
            let line = statement.line;
            let mut parts = parts.into_iter();
            return parts
                .try_for_each(|text| self.statement(&Statement { text, line, is_label: false }));
        }
        let action = match name {
            "bra" | "bra.uni" => {
                self.branches.push((self.program.insts.len(), operands.trim().to_owned()));
                Action::Branch(0)
            }
            _ => self.decode(name, &list(operands))?,
        };
        let (line, source) = (statement.line, self.source);
        self.program.insts.push(Inst { guard, action, line, source });
        Ok(())
    }

    fn directive(&mut self, text: &str) -> Result<(), Wrong> {
        let first = text.split_whitespace().next().unwrap_or_default();
        match first {
            // Not `%r<5>`, which stands for numbered ones. What is handed to a function is like one, too.
            ".reg" | ".param" => {
                let names = text.split([' ', '\t', ',']).skip(2).map(str::trim);
                let plain = names.filter(|name| !name.is_empty() && !name.contains('<'));
                for name in plain {
                    self.register(name);
                }
                Ok(())
            }
            ".local" => self.local(text),
            ".pragma" => Ok(()),
            _ => Err(format!("`{text}` is not known")),
        }
    }

    fn guard<'t>(&mut self, text: &'t str) -> Result<(Guard, &'t str), Wrong> {
        let Some(guarded) = text.strip_prefix('@') else { return Ok((None, text)) };
        let (name, rest) =
            guarded.split_once(char::is_whitespace).ok_or("a predicate without an instruction")?;
        let (name, wanted) = match name.strip_prefix('!') {
            Some(name) => (name, false),
            None => (name, true),
        };
        Ok((Some((self.register(name), wanted)), rest.trim()))
    }

    /// Whether a name is that of a register: `%r1`, or one that was declared. Those of the machine,
    /// such as `%tid.x`, have no number at their end.
    fn is_register(&self, text: &str) -> bool {
        let Some(name) = text.strip_prefix('%').filter(|_| !self.registers.contains_key(text))
        else {
            return self.registers.contains_key(text);
        };
        let letters = name.trim_end_matches(|c: char| c.is_ascii_digit());
        !letters.contains('.') && letters.len() < name.len()
    }

    fn register(&mut self, name: &str) -> Reg {
        let next = self.registers.len() as Reg;
        *self.registers.entry(name.to_owned()).or_insert(next)
    }

    /// A register that is written; none for `_`.
    fn target(&mut self, text: &str) -> Result<Option<Reg>, Wrong> {
        match text {
            "_" => Ok(None),
            _ if self.is_register(text) => Ok(Some(self.register(text))),
            _ => Err(format!("`{text}` is no register")),
        }
    }

    fn to(&mut self, text: &str) -> Result<Reg, Wrong> {
        self.target(text)?.ok_or_else(|| "nothing is written".to_owned())
    }

    fn arg(&mut self, text: &str) -> Result<Arg, Wrong> {
        if self.is_register(text) {
            return Ok(Arg::Reg(self.register(text)));
        }
        if let Some(number) = number(text) {
            return Ok(Arg::Imm(number));
        }
        let (name, offset) = match text.split_once('+') {
            Some((name, offset)) => (name, number(offset.trim()).ok_or("a strange offset")?),
            None => (text, 0),
        };
        if let Some(start) = self.shared.get(name.trim()) {
            return Ok(Arg::Shared(start.wrapping_add(offset)));
        }
        if let Some(start) = self.symbols.get(name.trim()) {
            return Ok(Arg::Imm(start + offset));
        }
        match self.program.params.iter().find(|param| param.name == name.trim()) {
            Some(param) => Ok(Arg::Imm(PARAM_BASE + param.offset + offset)),
            None => Err(format!("`{text}` is not known")),
        }
    }

    /// `[base+offset]`
    fn addr(&mut self, text: &str) -> Result<Addr, Wrong> {
        let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        let inner = inner.ok_or_else(|| format!("`{text}` is no address"))?.trim();
        self.plain_addr(inner)
    }

    fn plain_addr(&mut self, inner: &str) -> Result<Addr, Wrong> {
        let (base, offset) = match inner.split_once('+') {
            Some((base, offset)) => {
                (base, number(offset.trim()).ok_or_else(|| format!("`{inner}` is no address"))?)
            }
            None => (inner, 0),
        };
        Ok(Addr { base: self.arg(base.trim())?, offset: offset as i64 })
    }

    fn finish(mut self) -> Result<Program, Wrong> {
        for (at, label) in self.branches {
            let target = self.labels.get(&label).ok_or_else(|| format!("no label {label}"))?;
            self.program.insts[at].action = Action::Branch(*target);
        }
        self.program.n_regs = self.registers.len();
        Ok(self.program)
    }
}

fn param_slot(text: &str, offset: u64) -> Result<ParamSlot, Wrong> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let last = words.last().ok_or("a parameter without a name")?;
    let (name, count) = match last.split_once('[') {
        Some((name, rest)) => {
            (name, rest.trim_end_matches(']').parse().map_err(|_| "a parameter's size")?)
        }
        None => (*last, 1),
    };
    let types = words.iter().filter_map(|word| word.strip_prefix('.'));
    let ty = types.filter_map(super::program::Ty::from_name).next();
    let size = u64::from(ty.ok_or("a parameter without a type")?.bytes());
    let is_array = count > 1;
    let alignment = if is_array { 64 } else { size };
    let offset = offset.next_multiple_of(alignment);
    Ok(ParamSlot { name: name.to_owned(), offset, bytes: size * count })
}

/// A number as PTX writes it, as its bits.
fn number(text: &str) -> Option<u64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let digits = digits.trim_end_matches('U');
    let hex = |digits: &str| u64::from_str_radix(digits, 16).ok();
    let value = match digits.get(..2) {
        Some("0f" | "0d" | "0F" | "0D" | "0x" | "0X") => hex(&digits[2..])?,
        _ => digits.parse().ok()?,
    };
    Some(if negative { value.wrapping_neg() } else { value })
}

/// Operands: what stands between commas that no bracket encloses.
fn list(operands: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut depth = 0;
    let mut text = String::new();
    for c in operands.chars() {
        match c {
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' => depth -= 1,
            _ => {}
        }
        if c == ',' && depth == 0 {
            found.push(std::mem::take(&mut text).trim().to_owned());
        } else {
            text.push(c);
        }
    }
    let last = text.trim().to_owned();
    if !last.is_empty() {
        found.push(last);
    }
    found
}

/// The parts of `{a, b}`; a text without braces alone.
fn parts(text: &str) -> Vec<String> {
    match text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
        Some(inner) => list(inner),
        None => vec![text.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_bits() {
        assert_eq!(number("0f3F800000"), Some(0x3f80_0000));
        assert_eq!(number("-1"), Some(u64::MAX));
        assert_eq!(number("0x10U"), Some(16));
        assert_eq!(number("shared"), None);
    }

    #[test]
    fn operands_end_at_commas_outside_of_brackets() {
        assert_eq!(
            list("{%r1, %r2}, [%rd1, {%r3, %r4}], 3"),
            ["{%r1, %r2}", "[%rd1, {%r3, %r4}]", "3"]
        );
        assert_eq!(parts("{%r1, %r2}"), ["%r1", "%r2"]);
    }

    #[test]
    fn bits_are_inserted_by_a_mask() {
        let parts = bit_insert("bfi.b32", "%r1, %r2, %r3, 8, 16").unwrap();
        assert_eq!(parts[0], "shl.b32 %packed0, %r2, 8");
        assert_eq!(parts[1], format!("and.b32 %packed0, %packed0, {}", 0x00ff_ff00));
        assert_eq!(parts[2], format!("and.b32 %packed1, %r3, {}", 0xff00_00ff_u32));
        assert_eq!(parts[3], "or.b32 %r1, %packed0, %packed1");
        assert!(bit_insert("bfi.b32", "%r1, %r2, %r3, %r4, 16").is_none());
    }

    #[test]
    fn operands_of_16_bits_are_widened() {
        let parts = mixed_precision("fma.rn.f32.bf16", "%r1, %rs1, %rs2, %r2").unwrap();
        let expected = [
            "cvt.f32.bf16 %packed0, %rs1",
            "cvt.f32.bf16 %packed1, %rs2",
            "fma.rn.f32 %r1, %packed0, %packed1, %r2",
        ];
        assert_eq!(parts, expected);
        let parts = mixed_precision("sub.rn.f32.f16", "%r1, %rs1, %r2").unwrap();
        assert_eq!(parts, ["cvt.f32.f16 %packed0, %rs1", "sub.rn.f32 %r1, %packed0, %r2"]);
        assert!(mixed_precision("cvt.f32.bf16", "%r1, %rs1").is_none());
        assert!(mixed_precision("fma.rn.bf16", "%rs1, %rs1, %rs2, %rs3").is_none());
    }

    #[test]
    fn an_unknown_instruction_is_an_error() {
        let body = "\t.reg .b32 %r<2>;\n\tnonsense.b32 %r1, %r1;\n\tret;\n}";
        let ptx = format!(".visible .entry k(\n\t.param .u64 k_param_0\n)\n{{\n{body}");
        assert_eq!(parse(&ptx), Err("line 6 of the PTX: `nonsense.b32` is not known".to_owned()));
    }

    #[test]
    fn calls_of_vprintf() {
        let body = "\t.local .align 8 .b8 \t__local_depot0[8];\n\t.reg .b64 \t%SP;\n\
                    \tmov.b64 \t%SP, __local_depot0;\n\t{ // callseq 0, 0\n\
                    \t.param .b64 \tparam0;\n\t.param .b64 \tparam1;\n\t.param .b32 \tretval0;\n\
                    \tst.param.b64 \t[param1], %SP;\n\tst.param.b64 \t[param0], format;\n\
                    \tcall.uni (retval0), vprintf, (param0, param1);\n\t}\n\tret;\n}";
        let text = ".global .align 1 .b8 format[4] = {37, 37, 10};\n\n.visible .entry k()\n{\n";
        let program = parse(&format!("{text}{body}")).unwrap();
        assert_eq!(program.texts, [(TEXT_BASE, "%%\n".to_owned())]);
        assert_eq!((program.local_bytes, program.insts.len()), (8, 5));
        let (format, values) = (Arg::Reg(1), Arg::Reg(2));
        assert_eq!(program.insts[3].action, Action::Print { format, values });
    }

    #[test]
    fn labels_guards_and_positions() {
        let ptx = ".visible .entry k()\n{\n\t.loc\t1 12 5\n$L__a:\n\t@!%p1 bra \t$L__a;\n\tret;\n}\n\
                   \t.file\t1 \"k.rs\"\n";
        let program = parse(ptx).unwrap();
        assert_eq!(program.insts[0].action, Action::Branch(0));
        assert_eq!(program.insts[0].guard, Some((0, false)));
        assert_eq!(program.insts[0].source, Some((1, 12, 5)));
        assert_eq!(program.files, [(1, "k.rs".to_owned())]);
    }
}
