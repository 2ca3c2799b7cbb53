package main

import (
	"fmt"
	"sort"
	"strings"
)

type node struct {
	name, kind, refined, builtin, available string
	children                                []*node
}

// The tree of a configuration type over all minors; nil if the component has none.
func loadFields(component string) (*node, error) {
	kinds, present := map[string]string{}, map[string]presence{}
	for minor := oldest; minor <= newest; minor++ {
		found, err := optional(rows(fmt.Sprintf("config/%s-1.%d.txt", component, minor)))
		if err != nil {
			return nil, err
		}
		for _, row := range found {
			path, kind := row[0], row[1]
			if known := kinds[path]; known != "" && known != kind {
				return nil, fmt.Errorf("%s is %s and, in 1.%d, %s", path, known, minor, kind)
			}
			kinds[path] = kind
			if present[path] == nil {
				present[path] = presence{}
			}
			present[path][minor] = true
		}
	}
	if len(kinds) == 0 {
		return nil, nil
	}
	refined, err := loadPairs("refine/" + component + ".txt")
	if err != nil {
		return nil, err
	}
	builtins, err := loadBuiltins(component)
	if err != nil {
		return nil, err
	}
	root := &node{kind: "object"}
	paths := make([]string, 0, len(kinds))
	for path := range kinds {
		if refined[path] != "omit" {
			paths = append(paths, path)
		}
	}
	sort.Strings(paths)
	for _, path := range paths {
		parent, name := root, path
		if cut := strings.LastIndex(path, "."); cut >= 0 {
			name = path[cut+1:]
			if parent = find(root, path[:cut]); parent == nil {
				return nil, fmt.Errorf("%s has no parent", path)
			}
		}
		available, err := relative(present, path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		parent.children = append(parent.children, &node{
			name: name, kind: kinds[path], refined: refined[path], builtin: builtins[path], available: available,
		})
	}
	return root, nil
}

// Availability, unless the field is as old as the one around it, which says so already.
func relative(present map[string]presence, path string) (string, error) {
	text, err := present[path].render(oldest, newest)
	if cut := strings.LastIndex(path, "."); err == nil && cut >= 0 {
		around, _ := present[strings.TrimRight(path[:cut], "[]{}")].render(oldest, newest)
		if around == text {
			return "", nil
		}
	}
	return text, err
}

func find(at *node, path string) *node {
	for _, name := range strings.Split(path, ".") {
		name = strings.TrimRight(name, "[]{}")
		var next *node
		for _, child := range at.children {
			if child.name == name {
				next = child
			}
		}
		if next == nil {
			return nil
		}
		at = next
	}
	return at
}

func loadPairs(name string) (map[string]string, error) {
	found, err := rows(name)
	pairs := map[string]string{}
	for _, row := range found {
		pairs[row[0]] = row[1]
	}
	return pairs, err
}

// The newest minor speaks for all: the sources of the defaults were compared (see README.md), and where they differ
// refine/no-builtin.txt says so.
func loadBuiltins(component string) (map[string]string, error) {
	builtins, err := loadPairs(fmt.Sprintf("defaults/%s-1.%d.txt", component, newest))
	if err != nil {
		return nil, err
	}
	later, err := optional(rows("defaults/" + component + "-start.txt"))
	if err != nil {
		return nil, err
	}
	for _, row := range later {
		builtins[row[0]] = row[1]
	}
	withheld, err := rows("refine/no-builtin.txt")
	for _, row := range withheld {
		if row[0] == component {
			delete(builtins, row[1])
		}
	}
	return builtins, err
}

// Tables of objects, each written once: many parts of the scheduler's configuration look alike.
type objects struct {
	names map[string]string
	taken map[string]bool
	text  []string
}

func renderConfiguration(out *strings.Builder, root *node, uses map[string]bool) {
	nested := &objects{names: map[string]string{}, taken: map[string]bool{"CONFIGURATION": true, "FLAGS": true}}
	top := renderFields(root, nested, uses)
	fmt.Fprintf(out, "pub(crate) const CONFIGURATION: &[Field] = &[%s];\n\n", top)
	for _, text := range nested.text {
		out.WriteString(text + "\n\n")
	}
}

func renderFields(of *node, nested *objects, uses map[string]bool) string {
	uses["Field"], uses["field"] = true, true
	var text strings.Builder
	for _, child := range of.children {
		fmt.Fprintf(&text, "field(%q, %s)%s", child.name, renderSchema(child, nested, uses), child.available)
		if child.builtin != "" {
			fmt.Fprintf(&text, ".builtin(%s)", rust(child.builtin))
		}
		text.WriteString(",\n")
	}
	return text.String()
}

func renderSchema(of *node, nested *objects, uses map[string]bool) string {
	if of.refined != "" {
		return renderRefined(of.refined, uses)
	}
	return renderKind(of.kind, of, nested, uses)
}

func renderRefined(refined string, uses map[string]bool) string {
	kind, rest, _ := strings.Cut(refined, " ")
	words := strings.Fields(rest)
	if kind == "constant" {
		uses[rest] = true
		return rest
	}
	uses["Schema"] = true
	switch kind {
	case "list":
		return "Schema::List(&" + renderRefined(rest, uses) + ")"
	case "int":
		return fmt.Sprintf("Schema::Int { min: %s, max: %s }", bound(words[0]), bound(words[1]))
	case "within":
		return fmt.Sprintf("Schema::Within { min: %s, max: %s }", bound(words[0]), bound(words[1]))
	case "number":
		return fmt.Sprintf("Schema::Number { min: %s, max: %s }", bound(words[0]), bound(words[1]))
	case "form":
		uses["Form"] = true
		return "Schema::Form(Form::" + rest + ")"
	}
	for index, word := range words {
		words[index] = fmt.Sprintf("%q", strings.Trim(word, `"`))
	}
	return fmt.Sprintf("Schema::Choice(&[%s])", strings.Join(words, ", "))
}

func bound(number string) string {
	switch number {
	case "2147483647":
		return "i32::MAX as i64"
	case "9223372036854775807":
		return "i64::MAX"
	case "above-0":
		return "f64::MIN_POSITIVE"
	}
	return number
}

func renderKind(kind string, of *node, nested *objects, uses map[string]bool) string {
	if constant := map[string]string{
		"int32": "INT32", "int64": "INT64", "list text": "TEXTS", "map text": "TEXT_MAP",
	}[kind]; constant != "" {
		uses[constant] = true
		return constant
	}
	uses["Schema"] = true
	outer, inner, _ := strings.Cut(kind, " ")
	switch outer {
	case "list":
		return "Schema::List(&" + renderKind(inner, of, nested, uses) + ")"
	case "map":
		return "Schema::Map(&" + renderKind(inner, of, nested, uses) + ")"
	case "object":
		return "Schema::Object(" + nested.constant(of, uses) + ")"
	case "uint32":
		return "Schema::Int { min: 0, max: u32::MAX as i64 }"
	}
	simple := map[string]string{
		"bool": "Bool", "text": "Text", "duration": "Duration", "free": "Free", "float32": "Float", "float64": "Float",
	}[outer]
	if simple == "" {
		panic(of.name + " has the unknown kind " + kind)
	}
	return "Schema::" + simple
}

func (o *objects) constant(of *node, uses map[string]bool) string {
	text := renderFields(of, o, uses)
	if name := o.names[text]; name != "" {
		return name
	}
	name := screaming(of.name)
	for number := 2; o.taken[name]; number++ {
		name = fmt.Sprintf("%s_%d", screaming(of.name), number)
	}
	o.taken[name] = true
	o.names[text] = name
	o.text = append(o.text, fmt.Sprintf("const %s: &[Field] = &[%s];", name, text))
	return name
}

func screaming(name string) string {
	var text strings.Builder
	for index, letter := range name {
		if letter >= 'A' && letter <= 'Z' && index > 0 {
			text.WriteByte('_')
		}
		text.WriteString(strings.ToUpper(string(letter)))
	}
	return text.String()
}

func rust(text string) string {
	if strings.Contains(text, `"`) {
		return `r#"` + text + `"#`
	}
	return `"` + text + `"`
}
