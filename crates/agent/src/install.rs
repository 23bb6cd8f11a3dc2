//! scratch
pub(crate) fn start(_a: &std::sync::Arc<crate::Agent>) -> std::io::Result<()> {
    Ok(())
}
