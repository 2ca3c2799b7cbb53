//! Whom the API server takes us for.

use std::time::Duration;

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::Api;
use kube::api::PostParams;

use crate::access::Access;
use crate::client::{ClusterError, client_for};

/// What the API server makes of somebody's credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recognition {
    /// By this name.
    Known { user: String },
    /// 401: they are none that it accepts.
    Refused,
    /// A server before 1.28 has no such question.
    CannotBeAsked,
}

/// Asks once. A server that lets anybody in says so by the name that it gives them.
pub async fn ask_who_we_are(access: &Access, deadline: Duration) -> Result<Recognition, ClusterError> {
    let (client, server) = client_for(access, deadline);
    let reviews: Api<SelfSubjectReview> = Api::all(client);
    let what = "who this node is to it".to_owned();
    match tokio::time::timeout(deadline, reviews.create(&PostParams::default(), &SelfSubjectReview::default())).await {
        Ok(Ok(review)) => Ok(recognition_of(review)),
        Ok(Err(kube::Error::Api(status))) if status.code == 401 => Ok(Recognition::Refused),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(Recognition::CannotBeAsked),
        Ok(Err(source)) => Err(ClusterError::Ask { what, server, source: Box::new(source) }),
        Err(_) => Err(ClusterError::Deadline { what, server, waited: deadline, last: "none".to_owned() }),
    }
}

fn recognition_of(review: SelfSubjectReview) -> Recognition {
    let user = review.status.and_then(|status| status.user_info).and_then(|user| user.username);
    Recognition::Known { user: user.unwrap_or_default() }
}
