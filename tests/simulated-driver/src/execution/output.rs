//! What the kernels of a context print: kept until the host synchronises, then written to stdout and stderr.
//!
//! CUDA C++ Programming Guide, "Formatted Output": a buffer of fixed size (`CU_LIMIT_PRINTF_FIFO_SIZE`), in which
//! new text takes the place of the oldest, and which is written at launches and synchronisations. Here the text
//! counts, on a card its format and arguments. Text goes through the C library's stdout, so that it stays in order
//! with what the program prints through it.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// See the module's words.
#[derive(Debug)]
pub struct Output {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    lines: VecDeque<Line>,
    /// Bytes of those for stdout.
    bytes: usize,
    room: usize,
}

#[derive(Debug)]
enum Line {
    Printed(Vec<u8>),
    Failed(Vec<u8>),
}

impl Output {
    /// Room for `room` bytes.
    pub(super) fn new(room: usize) -> Self {
        Self { state: Mutex::new(State { lines: VecDeque::new(), bytes: 0, room }) }
    }

    /// Changes the room; what is too much is lost.
    pub fn set_room(&self, room: usize) {
        let mut state = self.state.lock();
        state.room = room;
        state.make_room(0);
    }

    /// Keeps what a kernel printed.
    pub fn print(&self, text: &[u8]) {
        let mut state = self.state.lock();
        state.make_room(text.len());
        if text.len() <= state.room {
            state.bytes += text.len();
            state.lines.push_back(Line::Printed(text.to_vec()));
        }
    }

    /// Keeps the line of a failed assertion, for stderr.
    pub fn assertion_failed(&self, text: &[u8]) {
        self.state.lock().lines.push_back(Line::Failed(text.to_vec()));
    }

    /// Writes everything out.
    pub fn flush(&self) {
        let lines = {
            let mut state = self.state.lock();
            state.bytes = 0;
            std::mem::take(&mut state.lines)
        };
        for line in lines {
            match line {
                Line::Printed(text) => write_to_stdout(&text),
                Line::Failed(text) => eprint!("{}", String::from_utf8_lossy(&text)),
            }
        }
    }
}

impl State {
    /// Forgets the oldest text until `bytes` more fit.
    fn make_room(&mut self, bytes: usize) {
        while self.bytes + bytes > self.room {
            let oldest = self.lines.iter().position(|line| matches!(line, Line::Printed(_)));
            let Some(Line::Printed(text)) = oldest.and_then(|place| self.lines.remove(place)) else { return };
            self.bytes -= text.len();
        }
    }
}

fn write_to_stdout(text: &[u8]) {
    unsafe extern "C" {
        static stdout: *mut libc::FILE;
    }
    // SAFETY: the C library's stream exists while the process does and has a lock of its own; `text` is readable
    // for its length.
    unsafe { libc::fwrite(text.as_ptr().cast(), 1, text.len(), stdout) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(output: &Output) -> String {
        let state = output.state.lock();
        let text = state.lines.iter().filter_map(|line| match line {
            Line::Printed(text) => Some(String::from_utf8_lossy(text).into_owned()),
            Line::Failed(_) => None,
        });
        text.collect()
    }

    #[test]
    fn new_text_takes_the_place_of_the_oldest() {
        let output = Output::new(10);
        ["one ", "two ", "three "].iter().for_each(|text| output.print(text.as_bytes()));
        assert_eq!(kept(&output), "two three ");
        output.print(b"more than there is room for");
        assert_eq!(kept(&output), "", "it took all the room and had none");
        output.print(b"1234567890");
        output.set_room(5);
        assert_eq!(kept(&output), "");
    }
}
