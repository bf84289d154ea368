//! Words between a test and its children, over their standard input and output.
//!
//! A line that a child says begins with a mark, since the test harness of the child writes lines too.

use std::io::{BufRead, Write as _};
use std::process::Child;

/// What follows `mark` in the next line that has it.
pub fn line(reader: &mut impl BufRead, mark: &str) -> String {
    let mut line = String::new();
    loop {
        line.clear();
        assert_ne!(reader.read_line(&mut line).expect("the child's output"), 0, "the child ended early");
        if let Some((_, value)) = line.split_once(mark) {
            return value.trim().to_owned();
        }
    }
}

/// Lets a child that waits go on.
pub fn go_on(child: &mut Child) {
    child.stdin.as_mut().expect("a pipe").write_all(b"go\n").expect("the child reads");
}

/// In a child: the next line of the parent; empty when the parent is gone.
pub fn heard() -> String {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).expect("a word from the parent");
    line.trim().to_owned()
}

/// In a child: waits for `go_on`; false when the parent is gone.
pub fn wait_for_word() -> bool {
    !heard().is_empty()
}
