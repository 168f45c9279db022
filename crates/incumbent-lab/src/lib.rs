//! The lab: a deterministic world in which the election protocols are broken, checked, compared and replayed.

pub mod observation;
pub mod oracle;
