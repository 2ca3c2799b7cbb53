//! A node group as a provider sees it: the bundle, how it is delivered, and the machines that get it; all from the spec.

use std::sync::atomic::{AtomicUsize, Ordering};

use bundle::{Besides, Bundle, UserDataPart};
use spec::{CompleteNodeGroup, CompleteSpec, Compression, DeliveryFormat, Os, Provider};

use crate::besides::besides_of_group;
use crate::delivery::machines::{
    Document, Machines, RootVolume, aws_auto_scaling_group, aws_launch_template, gce_instance_group,
    gce_instance_template,
};
use crate::delivery::{self, Carries, Compress, Delivery, Format, Installation, Proxy, Store, UserData};
use crate::error::RenderError;
use crate::node::{find_group, render_node};
use crate::trees;

/// Everything that is needed to start machines of a group.
pub struct GroupDelivery<'s> {
    spec: &'s CompleteSpec,
    group: &'s CompleteNodeGroup,
    pub bundle: Bundle,
}

/// The group's bundle, and the ways to deliver it.
pub fn render_group<'s>(spec: &'s CompleteSpec, group: &str) -> Result<GroupDelivery<'s>, RenderError> {
    let group = find_group(spec, group)?;
    Ok(GroupDelivery { spec, group, bundle: render_node(spec, group)? })
}

/// How many groups a thread takes at once: few enough that none is left with much when the others are done.
const SHARE: usize = 32;

/// Every group of a spec, on all cores; the results are in the order of the groups, whoever finished first.
pub fn render_all<T: Send>(
    spec: &CompleteSpec,
    each: impl Fn(&GroupDelivery<'_>) -> Result<T, RenderError> + Sync,
) -> Result<Vec<T>, RenderError> {
    let shares: Vec<&[CompleteNodeGroup]> = spec.groups.chunks(SHARE).collect();
    let next = AtomicUsize::new(0);
    // Which shares a thread took, and what became of them.
    let work = || {
        let render = |group| Ok(GroupDelivery { spec, group, bundle: render_node(spec, group)? });
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(share) = shares.get(index) else { return done };
            let results: Vec<_> = share.iter().map(|group| render(group).and_then(|group| each(&group))).collect();
            done.push((index, results));
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(shares.len());
    let mut done = std::thread::scope(|scope| {
        // The calling thread works too: for one share no other is started.
        let handles: Vec<_> = (1..workers).map(|_| scope.spawn(work)).collect();
        let mut done = work();
        for handle in handles {
            match handle.join() {
                Ok(more) => done.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    });
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().flat_map(|(_, results)| results).collect()
}

/// Why groups of a complete spec cannot be delivered as it says, each with its group; nothing else can go wrong then.
pub fn refusals(spec: &CompleteSpec) -> Vec<(String, RenderError)> {
    let refused = |group| {
        let bundle = render_node(spec, group);
        bundle.and_then(|bundle| GroupDelivery { spec, group, bundle }.check()).err()
    };
    let groups = spec.groups.iter();
    groups.filter_map(|group| refused(group).map(|error| (group.name.value.to_string(), error))).collect()
}

impl GroupDelivery<'_> {
    /// Whether the spec's own form of delivery can be had.
    fn check(&self) -> Result<(), RenderError> {
        let Some(format) = self.format() else { return Ok(()) };
        // To pack it takes longer than everything else; that is done only where something can be wrong with it.
        let bytes: usize = self.bundle.files.iter().map(|file| file.content.len()).sum();
        let is_plain = self.group.spec.additional_user_data.value.is_empty()
            && self.group.spec.delivery.nodestrap.installation.value == spec::Installation::Image
            && self.provider().limit().is_none_or(|limit| bytes < limit / 2);
        if is_plain { Ok(()) } else { self.user_data(format).map(drop) }
    }

    fn proxy(&self) -> Proxy {
        let proxy = &self.spec.cluster.proxy;
        Proxy {
            http: proxy.for_http(),
            https: proxy.for_https(),
            direct: proxy.no_proxy.value.iter().map(ToString::to_string).collect(),
        }
    }

    /// The form that the spec decides on; `None`: a folder.
    pub fn format(&self) -> Option<Format> {
        format_of(self.group.spec.delivery.format.value)
    }

    pub fn user_data(&self, format: Format) -> Result<UserData, RenderError> {
        let decided = &self.group.spec.delivery;
        let installation = match decided.nodestrap.installation.value {
            spec::Installation::Image => Installation::InImage,
            spec::Installation::Download => Installation::Download {
                urls: decided.nodestrap.urls.value.iter().map(ToString::to_string).collect(),
                sha256: decided.nodestrap.sha256.as_ref().map(|set| set.value.to_string()).unwrap_or_default(),
                sha512: decided.nodestrap.sha512.as_ref().map(|set| set.value.to_string()),
                proxy: self.proxy(),
            },
        };
        let additional: Vec<UserDataPart> = self
            .group
            .spec
            .additional_user_data
            .value
            .iter()
            .map(|part| UserDataPart {
                name: part.name.to_string(),
                content_type: part.r#type.to_string(),
                content: part.content.0.clone().into_bytes(),
            })
            .collect();
        let authority = decided.store.certificate_authority.as_ref();
        let store = (!decided.store.urls.value.is_empty()).then(|| Store {
            urls: decided.store.urls.value.iter().map(ToString::to_string).collect(),
            certificate_authorities: authority.map(|set| set.value.as_str().to_owned()),
            s3: decided.store.s3.as_ref().map(trees::s3),
        });
        delivery::user_data(
            format,
            &Delivery {
                bundle: &self.bundle,
                installation: &installation,
                nodestrap_path: decided.nodestrap.path.value.as_str(),
                additional: &additional,
                store: store.as_ref(),
                provider: self.provider(),
                compress: match decided.compression.value {
                    Compression::Auto => Compress::WhereTaken,
                    Compression::Never => Compress::Never,
                },
            },
        )
    }

    /// What its machines get besides the bundle.
    pub fn besides(&self) -> Besides {
        besides_of_group(self.group)
    }

    /// The provider's template of a machine, and the group that keeps so many of them running.
    pub fn machines(&self) -> Result<(Document, Document, Carries), RenderError> {
        let format = self.format().ok_or(RenderError::FolderHasNoUserData)?;
        let user_data = self.user_data(format)?;
        let machines = self.describe_machines()?;
        match self.spec.cluster.provider.value {
            Provider::Aws => {
                let template = aws_launch_template(&machines, &user_data)?;
                let group = aws_auto_scaling_group(&machines, &template)?;
                Ok((template, group, user_data.carries))
            }
            Provider::Gce => {
                let template = gce_instance_template(&machines, &user_data)?;
                let group = gce_instance_group(&machines, &template)?;
                Ok((template, group, user_data.carries))
            }
            other => Err(RenderError::NoTemplates { provider: other.to_string() }),
        }
    }

    fn describe_machines(&self) -> Result<Machines, RenderError> {
        let decided = &self.group.spec.machines;
        let needed = |field: &'static str, value: Option<String>| value.ok_or(RenderError::MachinesLack { field });
        let text = |setting: &Option<spec::Setting<spec::Line>>| setting.as_ref().map(|set| set.value.to_string());
        Ok(Machines {
            name: format!("{}-{}", self.bundle.cluster.replace('.', "-"), self.bundle.group),
            image: needed("image", text(&decided.image))?,
            instance_type: needed("instanceType", decided.instance_type.as_ref().map(|set| set.value.to_string()))?,
            min: decided.min.value,
            max: decided.max.value,
            desired: Some(decided.desired.value),
            subnets: decided.subnets.value.iter().map(ToString::to_string).collect(),
            security_groups: decided.security_groups.value.iter().map(ToString::to_string).collect(),
            identity: text(&decided.identity),
            tags: decided.tags.value.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
            root_volume: decided.disk_size.as_ref().map(|size| RootVolume {
                device: root_device(self.group.spec.os.value).to_owned(),
                gib: size.value,
                kind: None,
            }),
            zones: Vec::new(),
            metadata_hops: None,
        })
    }

    fn provider(&self) -> delivery::Provider {
        match self.spec.cluster.provider.value {
            Provider::Aws => delivery::Provider::Aws,
            Provider::Gce => delivery::Provider::Gce,
            Provider::Azure => delivery::Provider::Azure,
            Provider::Openstack => delivery::Provider::Openstack,
            Provider::Metal => delivery::Provider::Metal,
        }
    }
}

/// As the images of these systems name it on AWS.
fn root_device(os: Os) -> &'static str {
    match os {
        Os::Ubuntu | Os::Rhel => "/dev/sda1",
        _ => "/dev/xvda",
    }
}

fn format_of(format: DeliveryFormat) -> Option<Format> {
    match format {
        DeliveryFormat::CloudConfig => Some(Format::CloudConfig),
        DeliveryFormat::Mime => Some(Format::Mime),
        DeliveryFormat::Ignition => Some(Format::Ignition3),
        DeliveryFormat::Ignition2 => Some(Format::Ignition2),
        DeliveryFormat::Folder => None,
    }
}
