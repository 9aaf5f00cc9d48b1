//! Names of types as tables have them.

/// A type without its modules: `Sequential`, and `Conv2d` for one over two axes.
pub(super) fn short_name(full: &str) -> String {
    let mut name = String::new();
    let mut word = String::new();
    for letter in full.chars() {
        match letter {
            ':' => word.clear(),
            _ if letter.is_alphanumeric() || letter == '_' => word.push(letter),
            _ => {
                name.push_str(&word);
                word.clear();
                name.push(letter);
            }
        }
    }
    name.push_str(&word);
    (1..=3).fold(name, |name, n| name.replace(&format!("Nd<{n}>"), &format!("{n}d")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shortened() {
        assert_eq!(short_name("genesis::nn::linear::Linear"), "Linear");
        assert_eq!(short_name("genesis::nn::conv::ConvNd<2>"), "Conv2d");
        assert_eq!(short_name("a::Residual<b::c::Linear>"), "Residual<Linear>");
    }
}
