// Command registered lists the flags that Go sources register, without compiling them.
//
//	registered MODULE_CACHE COMPONENT VERSION    for example: ~/go/pkg/mod kube-proxy 31.14, or … etcd 6.16
//
// It prints one line per flag: name, tab, the method that registers it. Where a program of that version is at hand,
// its --help is the better source; this is for the minors in between. A name counts if it is an argument of a call
// that registers flags (`fs.StringVar(&x, "name", …)`), or a constant that such a call uses.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
)

// Folders that register flags which every component takes.
var common = []string{
	"component-base/cli/globalflag",
	"component-base/compatibility",
	"component-base/featuregate",
	"component-base/logs",
	"component-base/logs/api/v1",
	"component-base/metrics",
	"component-base/version/verflag",
	"component-base/zpages/flagz",
}

var folders = map[string][]string{
	"kube-apiserver": {
		"kubernetes/cmd/kube-apiserver/app/options", "kubernetes/pkg/kubeapiserver/options",
		"kubernetes/pkg/controlplane/apiserver/options", "apiserver/pkg/server/options",
		"apiserver/pkg/util/compatibility", "apiserver/pkg/util/version", "component-base/version",
		"kubernetes/plugin/pkg/admission/defaulttolerationseconds",
	},
	"kube-controller-manager": {
		"kubernetes/cmd/kube-controller-manager/app/options", "controller-manager/options",
		"controller-manager/pkg/leadermigration/options", "cloud-provider/options", "apiserver/pkg/server/options",
		"component-base/config/options", "component-base/version", "apiserver/pkg/util/version",
	},
	"kube-scheduler": {
		"kubernetes/cmd/kube-scheduler/app/options", "apiserver/pkg/server/options", "component-base/config/options",
		"component-base/version", "apiserver/pkg/util/version",
	},
	"kube-proxy": {"kubernetes/cmd/kube-proxy/app", "kubernetes/cmd/kube-proxy/app/options"},
	"kubelet":    {"kubernetes/cmd/kubelet/app/options", "kubernetes/pkg/kubelet/config"},
	// Files, because the folder has other programs too.
	"etcd": {"etcd/etcdmain/config.go", "etcd/embed/config.go"},
}

var (
	registers = regexp.MustCompile(`^(\w*Var|\w*VarP|VarPF|[rR]egister|registerDeprecated|Bool|String|Duration|Int|Int64|Lookup|AddFlag)$`)
	flagName  = regexp.MustCompile(`^[a-zA-Z][a-z0-9.-]*$`)
)

func main() {
	if len(os.Args) != 4 || folders[os.Args[2]] == nil {
		fmt.Fprintln(os.Stderr, "usage: registered MODULE_CACHE COMPONENT VERSION")
		os.Exit(2)
	}
	found := map[string]string{}
	all := folders[os.Args[2]]
	if os.Args[2] != "etcd" {
		all = append(all, common...)
	}
	for _, folder := range all {
		for _, at := range locate(os.Args[1], folder, os.Args[3]) {
			if err := collect(at, found); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
	}
	names := make([]string, 0, len(found))
	for name := range found {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Printf("%s\t%s\n", name, found[name])
	}
}

// A folder that this version does not have is no error: packages move.
func locate(cache, folder, version string) []string {
	module, below, _ := strings.Cut(folder, "/")
	root := "k8s.io/" + module + "@v0."
	switch module {
	case "kubernetes":
		root = "k8s.io/kubernetes@v1."
	case "etcd":
		root = "go.etcd.io/etcd/server/v3@v3."
	}
	matches, _ := filepath.Glob(filepath.Join(cache, root+version, below))
	return matches
}

func collect(at string, found map[string]string) error {
	folder, only := at, ""
	if strings.HasSuffix(at, ".go") {
		folder, only = filepath.Split(at)
	}
	packages, err := parser.ParseDir(token.NewFileSet(), folder, func(info os.FileInfo) bool {
		name := info.Name()
		wanted := !strings.HasSuffix(name, "_test.go") && !strings.HasSuffix(name, "_windows.go")
		return wanted && (only == "" || only == name)
	}, 0)
	if err != nil {
		return err
	}
	constants := map[string]string{}
	for _, parsed := range packages {
		ast.Inspect(parsed, func(node ast.Node) bool {
			if spec, is := node.(*ast.ValueSpec); is {
				for index, value := range spec.Values {
					if text, is := literal(value, nil); is && index < len(spec.Names) {
						constants[spec.Names[index].Name] = text
					}
				}
			}
			return true
		})
	}
	for _, parsed := range packages {
		ast.Inspect(parsed, func(node ast.Node) bool {
			call, is := node.(*ast.CallExpr)
			if !is {
				return true
			}
			method := called(call.Fun)
			if !registers.MatchString(method) || receiver(call.Fun) == "zap" {
				return true
			}
			// The name comes first, or second after the variable.
			for index := 0; index < len(call.Args) && index < 3; index++ {
				if text, is := literal(call.Args[index], constants); is {
					// pflag makes dashes of what is written with underscores.
					if text = strings.ReplaceAll(text, "_", "-"); flagName.MatchString(text) {
						found[text] = method
						if value, is := call.Args[0].(*ast.CallExpr); is && method == "Var" {
							found[text] = called(value.Fun)
						}
					}
					break
				}
				if format, is := formatted(call.Args[index]); is {
					for _, back := range []string{"log", "webhook"} {
						found[strings.ReplaceAll(format, "%s", back)] = method
					}
					break
				}
			}
			return true
		})
	}
	return nil
}

func called(function ast.Expr) string {
	switch function := function.(type) {
	case *ast.SelectorExpr:
		return function.Sel.Name
	case *ast.Ident:
		return function.Name
	}
	return ""
}

// The name before the dot: zap.String makes a field of a log line, not a flag.
func receiver(function ast.Expr) string {
	if selector, is := function.(*ast.SelectorExpr); is {
		if name, is := selector.X.(*ast.Ident); is {
			return name.Name
		}
	}
	return ""
}

// The audit back ends share their flags: fmt.Sprintf("audit-%s-mode", name).
func formatted(expression ast.Expr) (string, bool) {
	call, is := expression.(*ast.CallExpr)
	if !is || called(call.Fun) != "Sprintf" || len(call.Args) != 2 {
		return "", false
	}
	format, is := literal(call.Args[0], nil)
	return format, is && strings.HasPrefix(format, "audit-%s-")
}

func literal(expression ast.Expr, constants map[string]string) (string, bool) {
	switch expression := expression.(type) {
	case *ast.BasicLit:
		if expression.Kind == token.STRING {
			text, err := strconv.Unquote(expression.Value)
			return text, err == nil
		}
	case *ast.Ident:
		text, known := constants[expression.Name]
		return text, known
	case *ast.BinaryExpr:
		left, leftKnown := literal(expression.X, constants)
		right, rightKnown := literal(expression.Y, constants)
		return left + right, leftKnown && rightKnown && expression.Op == token.ADD
	}
	return "", false
}
