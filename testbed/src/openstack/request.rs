//! A request as a person makes it: `curl`, which shares no code with what is tested.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;

/// Sends a request, with a token where there is one, and returns status and answer; one that is not JSON is `null`.
///
/// # Errors
/// If there is no answer.
pub fn request(method: &str, url: &str, token: Option<&str>, body: &Value) -> Result<(u16, Value)> {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--noproxy", "*", "--max-time", "120", "--request", method, "--write-out", "\n%{http_code}"]);
    command.args(["--header", "Content-Type: application/json"]);
    if let Some(token) = token {
        command.arg("--header").arg(format!("X-Auth-Token: {token}"));
    }
    if !body.is_null() {
        command.args(["--data-binary", "@-"]);
    }
    command.arg(url).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("curl cannot be started")?;
    let input = child.stdin.take().context("curl's input")?;
    if !body.is_null() {
        write!(&input, "{body}").context("curl does not read the body")?;
    }
    drop(input);
    let output = child.wait_with_output().context("curl cannot be waited for")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let (answer, status) =
        text.rsplit_once('\n').with_context(|| format!("{method} {url}: {}", String::from_utf8_lossy(&output.stderr)))?;
    let status: u16 = status.trim().parse().with_context(|| format!("{method} {url}: no status in {status:?}"))?;
    anyhow::ensure!(status != 0, "{method} {url}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok((status, serde_json::from_str(answer).unwrap_or_default()))
}
