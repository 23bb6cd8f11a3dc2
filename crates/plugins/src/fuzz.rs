//! Doors for the fuzz targets, which exist only where `cfg(fuzzing)` is set: files that plugins keep, and those of flannel's daemon.

/// Whatever stands in such a file.
pub fn file(bytes: &[u8]) {
    crate::flannel::fuzz(bytes);
    crate::tuning::fuzz(bytes);
    crate::host_device::fuzz(bytes);
    crate::card::fuzz(bytes);
}
