//go:build tools

// Package earlier pins an earlier patch of the release that the lab runs, as far as nodes have it: for updates from one patch to
// the next and back.
package earlier

import (
	_ "k8s.io/kubernetes/cmd/kubectl"
	_ "k8s.io/kubernetes/cmd/kubelet"
)
