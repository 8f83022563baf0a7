//! Prints `docs/cli.md`: `cargo run -p wpack-cli --example reference > docs/cli.md`.

#![expect(clippy::print_stdout, reason = "a generator writes to standard output")]

fn main() {
    print!("{}", wpack_cli::reference());
}
