//! The documents, field by field: what a user may say (`…Spec`) and what is decided in the end (`Complete…`).

use std::collections::{BTreeMap, BTreeSet};

use bundle::{Artefact, Component, ExtensionName, ExtensionRelease, Provenance, RelativePath};

use crate::artefacts::{ManifestFile, S3Credentials, Serial};
use crate::contents::PublicKeys;
use crate::items::{
    AdditionalUserData, Addresses, ExecCredential, ExtraUnit, FileAsset, Hook, Keyring, Labels, MaxPods, Networks,
    SecretText, Taints, TrustedAuthority,
};
use crate::mistake::Mistake;
use crate::origin::Setting;
use crate::packages::PackageRepository;
use crate::proxy_credentials::ProxyCredentials;
use crate::record::{
    Case, Config, Containerd, Etcd, Flags, Given, KubeApiserver, KubeControllerManager, KubeProxy, KubeScheduler,
    Kubelet, Leaf, Maybe, Nested, Required, RequiredNested, record,
};
use crate::tectonic::CompleteTectonic;
use crate::texts::{
    AbsolutePath, ComponentVersion, HeaderName, Host, Image, InstanceTypeName, Line, ModuleName, Name, NoProxyEntry,
    PackageName, Registry, Sha256, Sha512, StoreUrl, SysctlName, WebUrl,
};
use crate::values::{
    ApiServerUrl, Architecture, BootstrapToken, CertificatePem, ClusterName, Compression, DeliveryFormat, DomainName,
    GroupName, Installation, KubeVersion, Layout, Os, PodNetwork, Provider, Reservation, Role, Runtime, SourceKind,
};

/// No `Option` is left to be defaulted: what may be `None` is then not there. `groups` are sorted by name.
#[derive(Clone, PartialEq)]
pub struct CompleteSpec {
    pub name: Setting<ClusterName>,
    pub cluster: CompleteCluster,
    pub groups: Vec<CompleteNodeGroup>,
    /// On whose word artefacts are used; `None` without artefacts.
    pub provenance: Option<Provenance>,
    /// What the user should know about decisions of theirs that hold all the same.
    pub warnings: Vec<Mistake>,
}

#[derive(Clone, PartialEq)]
pub struct CompleteNodeGroup {
    pub name: Setting<GroupName>,
    pub spec: CompleteGroup,
    /// What the verified manifest has for each component that is a tree.
    pub pinned: BTreeMap<Component, Pinned>,
    /// What it has for each system extension.
    pub pinned_extensions: BTreeMap<ExtensionName, PinnedExtension>,
}

/// An image for the nodes of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedExtension {
    pub artefact: Artefact,
    pub release: ExtensionRelease,
    pub programs: BTreeSet<AbsolutePath>,
}

/// An artefact for the nodes of a group, and where its programs are linked from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pinned {
    pub artefact: Artefact,
    pub links: BTreeMap<AbsolutePath, RelativePath>,
}

record!(
    "the spec of a Cluster",
    /// What all nodes of a cluster have in common.
    ClusterSpec => CompleteCluster {
        /// The release of Kubernetes. Default: the newest that nodestrap knows.
        kubernetes_version: Leaf<KubeVersion> = "kubernetesVersion",
        /// Who runs the machines. Default: metal.
        provider: Leaf<Provider> = "provider",
        /// The provider's region.
        region: Maybe<Line> = "region",
        /// Under which paths and names the files of a node lie. Default: nodestrap.
        layout: Leaf<Layout> = "layout",
        /// Where nodes reach the API server: https, a name or an address (IPv6 in brackets), no path.
        api_server: Required<ApiServerUrl> = "apiServer",
        /// How nodes join.
        join: RequiredNested<CompleteJoin> = "join",
        /// Addresses and names.
        networking: Nested<CompleteNetworking> = "networking",
        /// For nodes that reach the world through a proxy.
        proxy: Nested<CompleteProxy> = "proxy",
        /// What nodes believe besides what their image believes.
        trust: Nested<CompleteTrust> = "trust",
        /// Programs that nodes get from a store: which there are, where, and who vouches for them.
        artefacts: Given<CompleteArtefacts> = "artefacts",
        /// Where nodes get packages from, and which they need besides those of their programs.
        packages: Nested<PackagesDefaults> = "packages",
        /// Where nodes fetch what they need, if not from its makers.
        assets: Nested<CompleteAssets> = "assets",
        /// Mirrors of image registries: host of the registry, then base URLs in the order in which they are tried.
        registry_mirrors: Leaf<BTreeMap<Host, Vec<WebUrl>>> = "registryMirrors",
        /// Time servers. Default: those of the image.
        ntp_servers: Leaf<Vec<Host>> = "ntpServers",
        /// Kernel parameters on all nodes.
        sysctls: Leaf<BTreeMap<SysctlName, Line>> = "sysctls",
        /// Kernel modules on all nodes.
        kernel_modules: Leaf<Vec<ModuleName>> = "kernelModules",
        /// Files on all nodes.
        file_assets: Leaf<Vec<FileAsset>> = "fileAssets",
        /// Hooks on all nodes.
        hooks: Leaf<Vec<Hook>> = "hooks",
        /// Units on all nodes.
        units: Leaf<Vec<ExtraUnit>> = "units",
        /// User data of the user's own, on all nodes.
        additional_user_data: Leaf<Vec<AdditionalUserData>> = "additionalUserData",
        /// How what a node receives reaches it; a group may say otherwise.
        delivery: Nested<DeliveryDefaults> = "delivery",
        /// Who is told how each run of nodestrap on a node ended.
        report: Nested<CompleteReport> = "report",
        /// Certificates and keys of the control plane; needed by groups of the role control-plane only.
        pki: Nested<CompletePki> = "pki",
        /// The API server, as a static pod of the control plane.
        kube_apiserver: Nested<CompleteKubeApiserver> = "kubeApiserver",
        /// The controller manager, as a static pod of the control plane.
        kube_controller_manager: Nested<CompleteKubeControllerManager> = "kubeControllerManager",
        /// The scheduler, as a static pod of the control plane.
        kube_scheduler: Nested<CompleteKubeScheduler> = "kubeScheduler",
        /// etcd, as a static pod of the control plane.
        etcd: Nested<CompleteEtcd> = "etcd",
        /// The service proxy, as a static pod of every node.
        kube_proxy: Nested<CompleteKubeProxy> = "kubeProxy",
        /// The controller that keeps names of the API server in DNS, as a static pod of the control plane.
        dns_controller: Nested<CompleteDnsController> = "dnsController",
        /// Settings of the layout tectonic.
        tectonic: Case<CompleteTectonic> = "tectonic",
        /// Settings of the layout eksctl.
        eksctl: Case<CompleteEksctl> = "eksctl",
    }
);

record!(
    "join",
    /// How nodes join.
    JoinSpec => CompleteJoin {
        /// What a kubelet shows before it has a certificate: `kubeadm token create` makes one.
        bootstrap_token: Maybe<BootstrapToken> = "bootstrapToken",
        /// A program that gives the kubelet its credentials, instead of a token.
        exec: Maybe<ExecCredential> = "exec",
        /// The certificate authority of the cluster.
        certificate_authority: Required<CertificatePem> = "certificateAuthority",
    }
);

record!(
    "networking",
    /// Addresses and names.
    NetworkingSpec => CompleteNetworking {
        /// bridge: nodestrap configures a bridge on each node. none: a CNI DaemonSet brings the network.
        pod_network: Leaf<PodNetwork> = "podNetwork",
        /// The networks from which each node gets a range for its pods; at most one of each family.
        pod_cidrs: Leaf<Networks> = "podCIDRs",
        /// The networks of services; at most one of each family.
        service_cidrs: Leaf<Networks> = "serviceCIDRs",
        /// Default: the tenth address of each service network.
        cluster_dns: Leaf<Addresses> = "clusterDNS",
        /// The DNS domain of services.
        cluster_domain: Leaf<DomainName> = "clusterDomain",
    }
);

record!(
    "proxy",
    /// For nodes that reach the world through a proxy.
    ProxySpec => CompleteProxy {
        /// For http.
        http: Maybe<WebUrl> = "http",
        /// For https. Default: the one for http.
        https: Maybe<WebUrl> = "https",
        /// For proxies that ask who is there: {user, password}. On the node only root can read them.
        credentials: Maybe<ProxyCredentials> = "credentials",
        /// What is reached directly, besides what nodestrap works out.
        no_proxy: Leaf<Vec<NoProxyEntry>> = "noProxy",
    }
);

record!(
    "trust",
    /// What nodes believe besides what their image believes.
    TrustSpec => CompleteTrust {
        /// Certificate authorities of servers: registries, mirrors, proxies.
        certificate_authorities: Leaf<Vec<TrustedAuthority>> = "certificateAuthorities",
        /// OpenPGP keys for what a node itself verifies; those for `artefacts` stand there.
        keyrings: Leaf<Vec<Keyring>> = "keyrings",
    }
);

record!(
    "report",
    /// Who is told how each run of nodestrap on a node ended.
    ReportSpec => CompleteReport {
        /// Gets the report of each run, success or failure, by POST as JSON. A run never fails because of it.
        webhook: Maybe<WebUrl> = "webhook",
        /// Whom to believe that it is the webhook, besides what the image trusts.
        certificate_authority: Maybe<CertificatePem> = "certificateAuthority",
        /// Headers of the request, such as Authorization; their values are secrets.
        headers: Leaf<BTreeMap<HeaderName, SecretText>> = "headers",
    }
);

record!(
    "assets",
    /// Where nodes fetch what they need, if not from its makers.
    AssetsSpec => CompleteAssets {
        /// A registry that holds copies of all images of Kubernetes. Default: registry.k8s.io
        container_registry: Leaf<Registry> = "containerRegistry",
    }
);

record!(
    "artefacts",
    /// Programs that nodes get from a store. `nodestrap publish` makes one.
    ArtefactsSpec => CompleteArtefacts {
        /// Where places of the manifest lie: https, s3://BUCKET/FOLDER, or file:///FOLDER on the node.
        store: Required<StoreUrl> = "store",
        /// Copies of the store, tried after it in this order.
        mirrors: Leaf<Vec<StoreUrl>> = "mirrors",
        /// What there is, by size and digest. It is verified here; nodes get what it says of their own artefacts.
        manifest: Required<ManifestFile> = "manifest",
        /// OpenPGP keys (ASCII armour, or `{file: …}`), one of which must have signed the manifest.
        keyrings: Leaf<Vec<PublicKeys>> = "keyrings",
        /// Whether a manifest without a signature will do. `nodestrap status` says so for ever.
        unsigned: Leaf<bool> = "unsigned",
        /// Older manifests are refused, also if they are signed.
        minimum_serial: Leaf<Serial> = "minimumSerial",
        /// Whom to believe that it is the store, besides what the image trusts.
        certificate_authority: Maybe<CertificatePem> = "certificateAuthority",
        /// For stores in buckets.
        s3: Given<CompleteS3> = "s3",
    }
);

record!(
    "packages",
    /// What the groups of a cluster have in common in their packages.
    PackagesDefaultsSpec => PackagesDefaults {
        /// Where packages come from, besides the repositories of the image.
        repositories: Leaf<Vec<PackageRepository>> = "repositories",
        /// What the host needs besides the programs of a node: installed if it is absent, in whichever version.
        prerequisites: Maybe<Vec<PackageName>> = "prerequisites",
    }
);

record!(
    "packages",
    /// What the package manager of a node is told.
    PackagesSpec => CompletePackages {
        /// Where packages come from, besides the repositories of the image.
        repositories: Leaf<Vec<PackageRepository>> = "repositories",
        /// What the host needs besides the programs of a node: installed if it is absent, in whichever version. Default:
        /// iptables and conntrack, for the source package.
        prerequisites: Leaf<Vec<PackageName>> = "prerequisites",
    }
);

record!(
    "s3",
    /// Where buckets are, and how a node proves that it may read them.
    S3Spec => CompleteS3 {
        /// The region of the buckets.
        region: Required<Name> = "region",
        /// The service, if it is not that of AWS.
        endpoint: Maybe<WebUrl> = "endpoint",
        /// Whether the bucket stands in the path, not in the name of the host.
        path_style: Leaf<bool> = "pathStyle",
        /// instance-role (the default): what the provider gives to the machine; or {accessKey, secretKey, sessionToken}.
        credentials: Leaf<S3Credentials> = "credentials",
    }
);

record!(
    "delivery",
    /// How what a node receives reaches it.
    DeliverySpec => CompleteDelivery {
        /// In which form. Default: Ignition for the systems that start with it, else cloud-config.
        format: Leaf<DeliveryFormat> = "format",
        /// Whether user data is compressed. Default: auto.
        compression: Leaf<Compression> = "compression",
        /// How nodestrap itself reaches the node.
        nodestrap: Nested<CompleteNodestrap> = "nodestrap",
        /// A place for bundles that are too large for user data, which then carries only the digest.
        store: Nested<CompleteStore> = "store",
    }
);

record!(
    "delivery",
    /// What the groups of a cluster have in common in their delivery.
    DeliveryDefaultsSpec => DeliveryDefaults {
        /// In which form.
        format: Maybe<DeliveryFormat> = "format",
        /// Whether user data is compressed.
        compression: Maybe<Compression> = "compression",
        /// How nodestrap itself reaches the nodes.
        nodestrap: Nested<NodestrapDefaults> = "nodestrap",
        /// A place for bundles that are too large for user data, which then carries only the digest.
        store: Nested<StoreDefaults> = "store",
    }
);

record!(
    "nodestrap",
    /// How nodestrap itself reaches the nodes.
    NodestrapDefaultsSpec => NodestrapDefaults {
        /// image: it is part of the image. download: on first boot.
        installation: Maybe<Installation> = "installation",
        /// Where it lies, or is put.
        path: Maybe<AbsolutePath> = "path",
        /// Where it is downloaded from; mirrors, tried in order. Ignition knows one source and takes the first.
        urls: Maybe<Vec<WebUrl>> = "urls",
        /// Of the static binary; needed for a download.
        sha256: Maybe<Sha256> = "sha256",
        /// Of the static binary; needed for a download by Ignition 2.3.
        sha512: Maybe<Sha512> = "sha512",
    }
);

record!(
    "store",
    /// A place for bundles.
    StoreDefaultsSpec => StoreDefaults {
        /// Base URLs (https, or s3://BUCKET/FOLDER); mirrors, tried in order. A bundle is there under its digest.
        urls: Maybe<Vec<StoreUrl>> = "urls",
        /// Whom to believe that it is the store, besides what the image trusts.
        certificate_authority: Maybe<CertificatePem> = "certificateAuthority",
        /// For stores in buckets.
        s3: Given<CompleteS3> = "s3",
    }
);

record!(
    "nodestrap",
    /// How nodestrap itself reaches the node.
    NodestrapSpec => CompleteNodestrap {
        /// image: it is part of the image. download: on first boot.
        installation: Leaf<Installation> = "installation",
        /// Where it lies, or is put. Default: by the operating system.
        path: Leaf<AbsolutePath> = "path",
        /// Where it is downloaded from; mirrors, tried in order. Ignition knows one source and takes the first.
        urls: Leaf<Vec<WebUrl>> = "urls",
        /// Of the static binary; needed for a download.
        sha256: Maybe<Sha256> = "sha256",
        /// Of the static binary; needed for a download by Ignition 2.3.
        sha512: Maybe<Sha512> = "sha512",
    }
);

record!(
    "store",
    /// A place for bundles.
    StoreSpec => CompleteStore {
        /// Base URLs (https, or s3://BUCKET/FOLDER); mirrors, tried in order. A bundle is there under its digest.
        urls: Leaf<Vec<StoreUrl>> = "urls",
        /// Whom to believe that it is the store, besides what the image trusts.
        certificate_authority: Maybe<CertificatePem> = "certificateAuthority",
        /// For stores in buckets.
        s3: Given<CompleteS3> = "s3",
    }
);

record!(
    "pki",
    /// Certificates, keys and kubeconfigs of a control plane, as `nodestrap pki create` makes them.
    PkiSpec => CompletePki {
        /// The folder that has them, relative to the spec.
        folder: Maybe<crate::pki::PkiFolder> = "folder",
    }
);

macro_rules! static_pod {
    ($what:literal, $(#[doc = $meaning:literal])+ $spec:ident => $complete:ident of $component:ty
     $({ $($(#[doc = $doc:literal])+ $field:ident: $slot:ty = $name:literal),+ $(,)? })?) => {
        record!(
            $what,
            $(#[doc = $meaning])+
            $spec => $complete {
                /// The image. Default: that of the release.
                image: Leaf<Image> = "image",
                $($($(#[doc = $doc])+ $field: $slot = $name,)+)?
                /// Any flag of it, without dashes; laid over nodestrap's own.
                flags: Flags<$component> = "flags",
            }
        );
    };
}

static_pod!("kubeApiserver", /// The API server.
KubeApiserverSpec => CompleteKubeApiserver of KubeApiserver {
    /// Names that the API server has in DNS inside the network (annotation for the DNS controller).
    internal_name: Maybe<DomainName> = "internalName",
    /// Names that the API server has in DNS for the world.
    external_name: Maybe<DomainName> = "externalName",
});
static_pod!("kubeControllerManager", /// The controller manager.
    KubeControllerManagerSpec => CompleteKubeControllerManager of KubeControllerManager);
static_pod!("kubeScheduler", /// The scheduler.
KubeSchedulerSpec => CompleteKubeScheduler of KubeScheduler {
    /// Any field of KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1).
    config: Config<KubeScheduler> = "config",
});
static_pod!("etcd", /// etcd.
EtcdSpec => CompleteEtcd of Etcd {
    /// Names of the nodes that are members. Default: each node is a cluster of its own.
    members: Leaf<Vec<Name>> = "members",
    /// Members are reached as MEMBER.DOMAIN. Default: internal. and the name of the cluster.
    domain: Leaf<DomainName> = "domain",
    /// Where the data lies.
    data_folder: Leaf<AbsolutePath> = "dataFolder",
});
static_pod!("kubeProxy", /// The service proxy.
KubeProxySpec => CompleteKubeProxy of KubeProxy {
    /// The kubeconfig of the user system:kube-proxy; the static pod is there only if this is.
    kubeconfig: Maybe<SecretText> = "kubeconfig",
    /// Any field of KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1).
    config: Config<KubeProxy> = "config",
});

record!(
    "dnsController",
    /// The controller that keeps names of the API server in DNS.
    DnsControllerSpec => CompleteDnsController {
        /// Its image; the static pod is there only if this is.
        image: Maybe<Image> = "image",
        /// The command with its arguments.
        command: Leaf<Vec<Line>> = "command",
    }
);

record!(
    "eksctl",
    /// Settings of the layout eksctl.
    EksctlSpec => CompleteEksctl {
        /// The account of the registry that has the images of EKS, for metadata.env. Runtimes take their pause image from
        /// where they need no credentials: see containerRuntime.sandboxImage.
        ecr_account: Leaf<Line> = "ecrAccount",
    }
);

record!(
    "the spec of a NodeGroup",
    /// Nodes that are alike.
    GroupSpec => CompleteGroup {
        /// What the nodes are for. Default: worker.
        role: Leaf<Role> = "role",
        /// The operating system of the image. Default: debian.
        os: Leaf<Os> = "os",
        /// What the machines are made of. Default: amd64.
        architecture: Leaf<Architecture> = "architecture",
        /// The release of the kubelet, if not that of the cluster: up to three minors older, never newer.
        kubernetes_version: Leaf<KubeVersion> = "kubernetesVersion",
        /// Where programs come from: preinstalled (the image brings them), tree (nodestrap does, from `artefacts`), package (the package
        /// manager does), or sysext (nodestrap does, from `artefacts`, as system extensions of flatcar; containerd stays the system's).
        source: Leaf<SourceKind> = "source",
        /// The programs one by one, where they differ from `source` or need another version.
        components: Nested<CompleteComponents> = "components",
        /// Where nodes get packages from, and which they need besides; the repositories of the cluster are laid under them.
        packages: Nested<CompletePackages> = "packages",
        /// The machines, for launch templates and for what depends on their size.
        machines: Nested<CompleteMachines> = "machines",
        /// Set by the kubelet when the node registers. Of the domains kubernetes.io and k8s.io only what a kubelet may set.
        labels: Leaf<Labels> = "labels",
        /// On the node from the moment it registers.
        taints: Leaf<Taints> = "taints",
        /// A number, `map` (by instance type, as the VPC network plug-in of AWS needs it), or an expression.
        max_pods: Leaf<MaxPods> = "maxPods",
        /// auto: what the system and Kubernetes need is kept back, by instance type.
        reservation: Leaf<Reservation> = "reservation",
        /// The kubelet.
        kubelet: Nested<CompleteKubelet> = "kubelet",
        /// The container runtime.
        container_runtime: Nested<CompleteContainerRuntime> = "containerRuntime",
        /// Kernel parameters; those of the cluster are laid under them.
        sysctls: Leaf<BTreeMap<SysctlName, Line>> = "sysctls",
        /// Kernel modules, besides those of the cluster.
        kernel_modules: Leaf<Vec<ModuleName>> = "kernelModules",
        /// Files, besides those of the cluster.
        file_assets: Leaf<Vec<FileAsset>> = "fileAssets",
        /// Hooks, besides those of the cluster.
        hooks: Leaf<Vec<Hook>> = "hooks",
        /// Units, besides those of the cluster.
        units: Leaf<Vec<ExtraUnit>> = "units",
        /// User data of the user's own, after that of the cluster.
        additional_user_data: Leaf<Vec<AdditionalUserData>> = "additionalUserData",
        /// How what a node receives reaches it, where it differs from the cluster's.
        delivery: Nested<CompleteDelivery> = "delivery",
    }
);

record!(
    "components",
    /// Programs of a node that are installed by themselves.
    ComponentsSpec => CompleteComponents {
        /// The kubelet; its version is kubernetesVersion.
        kubelet: Nested<CompleteComponent> = "kubelet",
        /// For people and hooks. Default of its version: kubernetesVersion.
        kubectl: Nested<CompleteComponent> = "kubectl",
        /// The container runtime, with its shims. If the image brings it, its version decides how it is configured.
        containerd: Nested<CompleteComponent> = "containerd",
        /// What containerd starts containers with.
        runc: Nested<CompleteComponent> = "runc",
        /// What connects pods to their network.
        cni_plugins: Nested<CompleteComponent> = "cniPlugins",
        /// For people who look at a runtime; only if it is asked for.
        crictl: Nested<CompleteComponent> = "crictl",
    }
);

record!(
    "a component",
    /// Where a program comes from, and which version.
    ComponentSpec => CompleteComponent {
        /// preinstalled, tree, package or sysext. Default: that of the group.
        source: Maybe<SourceKind> = "source",
        /// Of a tree, an extension, or a package, there with its revision: 1.36.3-1.1. Default: what goes with kubernetesVersion.
        version: Maybe<ComponentVersion> = "version",
        /// What its package is called. Default: by the operating system.
        package: Maybe<PackageName> = "package",
    }
);

record!(
    "machines",
    /// The machines of a group.
    MachinesSpec => CompleteMachines {
        /// Machine type of the provider.
        instance_type: Maybe<InstanceTypeName> = "instanceType",
        /// Whether the network plug-in of AWS gives prefixes instead of addresses.
        prefix_delegation: Leaf<bool> = "prefixDelegation",
        /// Image of the machines, as the provider names it.
        image: Maybe<Line> = "image",
        /// Fewest machines.
        min: Leaf<u32> = "min",
        /// Most machines.
        max: Leaf<u32> = "max",
        /// How many there are to begin with.
        desired: Leaf<u32> = "desired",
        /// Subnets, as the provider names them.
        subnets: Leaf<Vec<Line>> = "subnets",
        /// Security groups (aws) or network tags (gce).
        security_groups: Leaf<Vec<Line>> = "securityGroups",
        /// Instance profile (aws) or service account (gce).
        identity: Maybe<Line> = "identity",
        /// Size of the root disk in GiB.
        disk_size: Maybe<u32> = "diskSize",
        /// Tags (aws) or labels (gce) of the machines.
        tags: Leaf<BTreeMap<Line, Line>> = "tags",
    }
);

record!(
    "kubelet",
    /// The kubelet of a group.
    KubeletSpec => CompleteKubelet {
        /// Absolute path in the image.
        binary: Leaf<AbsolutePath> = "binary",
        /// Any field of KubeletConfiguration (kubelet.config.k8s.io/v1beta1); laid over nodestrap's own, leaf by leaf.
        config: Config<Kubelet> = "config",
        /// For what the configuration cannot say; names without dashes.
        flags: Flags<Kubelet> = "flags",
    }
);

record!(
    "containerRuntime",
    /// The container runtime of a group.
    ContainerRuntimeSpec => CompleteContainerRuntime {
        /// Which one. Default: by the operating system.
        name: Leaf<Runtime> = "name",
        /// Absolute path of its program; its presence is checked before anything is changed.
        binary: Leaf<AbsolutePath> = "binary",
        /// The image of the pause container; a tag or digest is needed.
        sandbox_image: Leaf<Image> = "sandboxImage",
        /// Folder of the CNI plug-ins.
        cni_binaries: Leaf<AbsolutePath> = "cniBinaries",
        /// containerd's configuration (version 3); laid over nodestrap's own, leaf by leaf.
        config: Config<Containerd> = "config",
    }
);
