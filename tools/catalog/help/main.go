// Command help records the flags of a real program: `help PROGRAM REGISTERED > facts/flags/NAME-1.36.txt`.
// Of etcd, whose help is a text in its sources, too: `help --text HELP REGISTERED`, where only flags in REGISTERED count.
//
// It prints, sorted, one line per flag: name, type, default and "deprecated" or nothing, separated by tabs. What
// --help hides (deprecated flags, mostly) is found by asking the program about every name in REGISTERED, the output of
// the command of that name: a program refuses a flag that it does not know before it does anything else.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"sort"
	"strings"
)

type flag struct {
	kind, builtin string
	deprecated    bool
}

var (
	first      = regexp.MustCompile(`^ +(?:-[a-zA-Z], )?--([a-zA-Z0-9.-]+)(?: (\S+))?   +(.*)$`)
	builtin    = regexp.MustCompile(`\(default (.*?)\)(?: \(DEPRECATED.*)?$`)
	deprecated = regexp.MustCompile(`DEPRECATED|[Tt]his flag is deprecated|deprecated and will be removed`)
)

func main() {
	var err error
	switch {
	case len(os.Args) == 3:
		err = run(os.Args[1], os.Args[2])
	case len(os.Args) == 4 && os.Args[1] == "--text":
		err = runText(os.Args[2], os.Args[3])
	default:
		fmt.Fprintln(os.Stderr, "usage: help PROGRAM REGISTERED, or help --text HELP REGISTERED")
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(program, registered string) error {
	output, err := exec.Command(program, "--help").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s --help: %w", program, err)
	}
	flags := parse(output)
	if len(flags) == 0 {
		return fmt.Errorf("%s --help names no flag", program)
	}
	candidates, err := os.ReadFile(registered)
	if err != nil {
		return err
	}
	for _, line := range strings.Split(strings.TrimSpace(string(candidates)), "\n") {
		name, method, _ := strings.Cut(line, "\t")
		if _, shown := flags[name]; !shown && accepts(program, name) {
			flags[name] = flag{kind: kindOf(method), deprecated: true}
		}
	}
	delete(flags, "help")
	delete(flags, "version")
	print(flags)
	return nil
}

var (
	etcdFlag       = regexp.MustCompile(`(?m)^\s*--([a-z0-9-]+)(?: '([^']*)')?[^\n]*\n?([^\n]*)`)
	etcdDeprecated = regexp.MustCompile(`(?i)deprecated|decommission`)
)

func runText(help, registered string) error {
	text, err := os.ReadFile(help)
	if err != nil {
		return err
	}
	candidates, err := os.ReadFile(registered)
	if err != nil {
		return err
	}
	flags := map[string]flag{}
	for _, line := range strings.Split(strings.TrimSpace(string(candidates)), "\n") {
		name, method, _ := strings.Cut(line, "\t")
		flags[name] = flag{kind: kindOf(method)}
	}
	for _, found := range etcdFlag.FindAllStringSubmatch(string(text), -1) {
		name, builtin := found[1], found[2]
		// Expressions of Go and placeholders are no values.
		if strings.ContainsAny(builtin, "`$") || strings.HasPrefix(builtin, "math.") {
			builtin = ""
		}
		if known, is := flags[name]; is {
			known.builtin, known.deprecated = builtin, etcdDeprecated.MatchString(found[3])
			flags[name] = known
		}
	}
	delete(flags, "version")
	print(flags)
	return nil
}

func parse(output []byte) map[string]flag {
	flags := map[string]flag{}
	var name, kind, usage string
	finish := func() {
		if name != "" {
			flags[name] = flag{kind, defaultOf(usage), deprecated.MatchString(usage)}
		}
		name = ""
	}
	lines := bufio.NewScanner(bytes.NewReader(output))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if found := first.FindStringSubmatch(line); found != nil {
			finish()
			name, kind, usage = found[1], found[2], found[3]
			if kind == "" {
				kind = "bool"
			}
		} else if strings.TrimSpace(line) == "" || !strings.HasPrefix(line, "        ") {
			finish()
		} else {
			usage += " " + strings.TrimSpace(line)
		}
	}
	finish()
	return flags
}

func defaultOf(usage string) string {
	found := builtin.FindStringSubmatch(usage)
	if found == nil {
		return ""
	}
	return strings.Trim(found[1], `"`)
}

// An equals sign, so that no flag takes the next argument as its value and the program starts for real.
func accepts(program, name string) bool {
	output, _ := exec.Command(program, "--"+name+"=x", "--help").CombinedOutput()
	return !bytes.Contains(output, []byte("unknown flag"))
}

func kindOf(method string) string {
	kind := strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(method, "P"), "Var"))
	switch kind {
	case "addflag":
		return "mapStringBool"
	case "", "lookup", "register":
		return "string"
	case "stringslice", "newstringsvalue", "newuniquestringsvalue", "newuniqueurlswithexceptions", "newurlsvalue":
		return "strings"
	case "newuint32value":
		return "uint32"
	case "newselectivestringvalue", "newselectivestringsvalue":
		return "string"
	}
	return kind
}

func print(flags map[string]flag) {
	names := make([]string, 0, len(flags))
	for name := range flags {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		mark := ""
		if flags[name].deprecated {
			mark = "deprecated"
		}
		fmt.Println(strings.Join([]string{name, flags[name].kind, flags[name].builtin, mark}, "\t"))
	}
}
