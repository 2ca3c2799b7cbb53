package main

import (
	"fmt"
	"sort"
	"strings"
)

type flag struct {
	name, kind, builtin, available string
	deprecated                     bool
}

// Programs of the first and the last version were run; the names in between come from the sources.
func loadFlags(component string) ([]flag, error) {
	version, first, last := "1", oldest, newest
	if component == "etcd" {
		version, first, last = "3", 5, 7
	}
	type facts struct {
		kind       string
		builtins   []string
		deprecated bool
		minors     presence
	}
	known := map[string]*facts{}
	for minor := first; minor <= last; minor++ {
		found, err := rows(fmt.Sprintf("flags/%s-%s.%d.txt", component, version, minor))
		if err != nil {
			return nil, err
		}
		for _, row := range found {
			if known[row[0]] == nil {
				known[row[0]] = &facts{minors: presence{}}
			}
			flag := known[row[0]]
			flag.minors[minor] = true
			if len(row) == 4 {
				flag.kind, flag.deprecated = row[1], row[3] != ""
				flag.builtins = append(flag.builtins, row[2])
			}
		}
	}
	withheld, err := rows("refine/no-builtin.txt")
	if err != nil {
		return nil, err
	}
	for _, row := range withheld {
		if facts := known[strings.TrimPrefix(row[1], "--")]; row[0] == component && facts != nil && row[1][0] == '-' {
			facts.builtins = nil
		}
	}
	var flags []flag
	for name, facts := range known {
		available, err := facts.minors.render(first, last)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", name, err)
		}
		kind, err := flagKind(facts.kind)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", name, err)
		}
		flags = append(flags, flag{name, kind, agreed(facts.builtins), available, facts.deprecated})
	}
	sort.Slice(flags, func(a, b int) bool { return flags[a].name < flags[b].name })
	return flags, nil
}

func flagKind(shown string) (string, error) {
	switch shown {
	case "bool":
		return "Bool", nil
	case "int", "int64":
		return "Int", nil
	case "int32":
		return "Int32", nil
	case "uint", "uint32", "uint64", "Level":
		return "Natural", nil
	case "float", "float32", "float64":
		return "Float", nil
	case "duration":
		return "Duration", nil
	case "strings", "stringArray", "int32Slice", "ints", "cidrs", "[]v1.Taint", "reserved-memory":
		return "List", nil
	case "mapStringString", "mapStringBool", "stringToString", "colonSeparatedMultimapStringString", "pattern=N,...":
		return "Map", nil
	case "ip":
		return "Address", nil
	case "portRange":
		return "PortRange", nil
	case "string", "ipport", "quantity", "namedCertKey", "LocalMode", "ProxyMode", "RuntimeDefault":
		return "Text", nil
	}
	return "", fmt.Errorf("the type %q is not known here", shown)
}

func renderFlags(out *strings.Builder, flags []flag, uses map[string]bool) {
	uses["Flag"], uses["FlagKind"], uses["flag"] = true, true, true
	out.WriteString("pub(crate) const FLAGS: &[Flag] = &[\n")
	for _, flag := range flags {
		fmt.Fprintf(out, "flag(%q, FlagKind::%s)%s", flag.name, flag.kind, flag.available)
		if flag.builtin != "" && flag.builtin != "[]" {
			fmt.Fprintf(out, ".builtin(%s)", rust(flag.builtin))
		}
		if flag.deprecated {
			out.WriteString(".deprecated()")
		}
		out.WriteString(",\n")
	}
	out.WriteString("];\n\n")
}

// Flags that the configuration says better, and fields: of the kubelet those whose names differ, of others all.
func loadHints(component string) ([][]string, error) {
	return optional(rows("refine/" + component + "-flag-fields.txt"))
}

// The flags that the configuration cannot say.
func withoutFields(component string, flags []flag, hints [][]string, fields *node) []flag {
	said := map[string]bool{}
	for _, hint := range hints {
		said[strings.ReplaceAll(hint[0], "-", "")] = true
	}
	if component == "kubelet" {
		for _, field := range fields.children {
			said[strings.ToLower(field.name)] = true
		}
	}
	var left []flag
	for _, flag := range flags {
		if !said[strings.ReplaceAll(flag.name, "-", "")] {
			left = append(left, flag)
		}
	}
	return left
}

func renderHints(out *strings.Builder, hints [][]string) {
	out.WriteString("/// Flags that belong into the configuration, with the field that is not simply named alike.\n")
	out.WriteString("pub(crate) const FLAG_FIELDS: &[(&str, &str)] = &[\n")
	for _, hint := range hints {
		fmt.Fprintf(out, "(%q, %q),\n", hint[0], hint[1])
	}
	out.WriteString("];\n")
}
