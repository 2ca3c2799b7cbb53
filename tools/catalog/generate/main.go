// Command generate makes the Rust tables of crates/spec/src/catalog from the facts: `go run ./generate` in
// tools/catalog. It reads facts/ and writes nothing but those tables; rustfmt must be installed.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const tables = "../../crates/spec/src/catalog"

// The minors of Kubernetes that the facts are about, and those whose programs were run.
const oldest, newest = 30, 36

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	for _, component := range []string{
		"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "etcd",
	} {
		text, err := renderComponent(component)
		if err != nil {
			return fmt.Errorf("%s: %w", component, err)
		}
		path := filepath.Join(tables, strings.ReplaceAll(component, "-", "_")+".rs")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
		format := exec.Command("rustfmt", "--edition", "2024", "--config-path", "../../rustfmt.toml", path)
		format.Stderr = os.Stderr
		if err := format.Run(); err != nil {
			return fmt.Errorf("rustfmt: %w", err)
		}
	}
	return nil
}

func renderComponent(component string) (string, error) {
	var out strings.Builder
	var body strings.Builder
	uses := map[string]bool{}
	fields, err := loadFields(component)
	if err != nil {
		return "", err
	}
	if fields != nil {
		renderConfiguration(&body, fields, uses)
	}
	flags, err := loadFlags(component)
	if err != nil {
		return "", err
	}
	hints, err := loadHints(component)
	if err != nil {
		return "", err
	}
	renderFlags(&body, withoutFields(component, flags, hints, fields), uses)
	if hints != nil {
		renderHints(&body, hints)
	}
	fmt.Fprintf(&out, "//! %s\n\n", title(component))
	names := make([]string, 0, len(uses))
	for _, name := range []string{
		"Field", "Flag", "FlagKind", "INT32", "INT64", "Schema", "TEXTS", "TEXT_MAP", "field", "flag",
	} {
		if uses[name] {
			names = append(names, name)
		}
	}
	fmt.Fprintf(&out, "use super::schema::{%s};\n", strings.Join(names, ", "))
	var values []string
	for _, name := range []string{"CIPHER_SUITES", "Form", "TLS_VERSION"} {
		if uses[name] {
			values = append(values, name)
		}
	}
	if values != nil {
		fmt.Fprintf(&out, "use super::values::{%s};\n", strings.Join(values, ", "))
	}
	out.WriteString("\n")
	out.WriteString(body.String())
	return out.String(), nil
}

func title(component string) string {
	const how = "\n//!\n//! Generated from tools/catalog/facts by tools/catalog/generate: do not edit."
	switch component {
	case "etcd":
		return "The flags of etcd 3.5 to 3.7; since and until are minors of etcd 3." + how
	case "kubelet":
		return "`KubeletConfiguration` v1beta1, and the flags that say what it cannot." + how
	case "kube-proxy":
		return "`KubeProxyConfiguration` v1alpha1, and the flags that say what it cannot." + how
	case "kube-scheduler":
		return "`KubeSchedulerConfiguration` v1, and the flags that say what it cannot." + how
	}
	return "The flags of " + component + "." + how
}
