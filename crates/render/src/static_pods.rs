//! Static pods.
use crate::bundle::File;
use crate::error::RenderError;
use spec::{CompleteCluster, CompleteGroup};
pub(crate) fn render_static_pods(_: &CompleteCluster, _: &CompleteGroup) -> Result<Vec<File>, RenderError> {
    Ok(Vec::new())
}
