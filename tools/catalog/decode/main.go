// Command strict-decode knows the configuration types of one minor release of Kubernetes.
//
//	strict-decode KIND < FILE      exit 1 and one line on stderr if a field is unknown, doubled or mistyped
//	strict-decode --fields KIND    every field of KIND: path, tab, kind; sorted
//	strict-decode --values KIND < FILE    every value that FILE has or that Go sets to zero: path, tab, JSON; sorted
//
// The types are those of the modules that the chosen go.mod names: build it once for each minor with
// `go build -modfile=1.30.mod -o strict-decode-1.30 .`; see ../README.md.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	proxy "k8s.io/kube-proxy/config/v1alpha1"
	scheduler "k8s.io/kube-scheduler/config/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

var kinds = map[string]struct {
	version schema.GroupVersion
	add     func(*runtime.Scheme) error
}{
	"KubeletConfiguration":       {kubelet.SchemeGroupVersion, kubelet.AddToScheme},
	"KubeProxyConfiguration":     {proxy.SchemeGroupVersion, proxy.AddToScheme},
	"KubeSchedulerConfiguration": {scheduler.SchemeGroupVersion, scheduler.AddToScheme},
}

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader, out io.Writer) error {
	switch {
	case len(args) == 1 && !strings.HasPrefix(args[0], "-"):
		document, err := io.ReadAll(in)
		if err != nil {
			return err
		}
		_, err = decode(args[0], document)
		return err
	case len(args) == 2 && args[0] == "--values":
		document, err := io.ReadAll(in)
		if err != nil {
			return err
		}
		return printValues(args[1], document, out)
	case len(args) == 2 && args[0] == "--fields":
		return printFields(args[1], out)
	}
	return errors.New("usage: strict-decode [--fields|--values] KIND < FILE")
}

func lookUp(kind string) (*runtime.Scheme, schema.GroupVersionKind, error) {
	entry, known := kinds[kind]
	if !known {
		return nil, schema.GroupVersionKind{}, fmt.Errorf("%q is not a kind of configuration that is known here", kind)
	}
	scheme := runtime.NewScheme()
	if err := entry.add(scheme); err != nil {
		return nil, schema.GroupVersionKind{}, err
	}
	return scheme, entry.version.WithKind(kind), nil
}

// The decoder that the components themselves use.
func decode(kind string, document []byte) (runtime.Object, error) {
	scheme, wanted, err := lookUp(kind)
	if err != nil {
		return nil, err
	}
	codecs := serializer.NewCodecFactory(scheme, serializer.EnableStrict)
	object, found, err := codecs.UniversalDeserializer().Decode(document, nil, nil)
	if err != nil {
		return nil, err
	}
	if *found != wanted {
		return nil, fmt.Errorf("this is a %s, not a %s", found, wanted)
	}
	if configuration, is := object.(*scheduler.KubeSchedulerConfiguration); is {
		// The arguments of plug-ins are documents of their own.
		err = configuration.DecodeNestedObjects(codecs.UniversalDeserializer())
	}
	return object, err
}

func printFields(kind string, out io.Writer) error {
	scheme, wanted, err := lookUp(kind)
	if err != nil {
		return err
	}
	object, err := scheme.New(wanted)
	if err != nil {
		return err
	}
	var lines []string
	describe(reflect.TypeOf(object).Elem(), "", &lines)
	return printSorted(lines, out)
}

func printSorted(lines []string, out io.Writer) error {
	sort.Strings(lines)
	buffer := bufio.NewWriter(out)
	for _, line := range lines {
		fmt.Fprintln(buffer, line)
	}
	return buffer.Flush()
}

func printValues(kind string, document []byte, out io.Writer) error {
	object, err := decode(kind, document)
	if err != nil {
		return err
	}
	var lines []string
	if err := collectValues(reflect.ValueOf(object).Elem(), "", &lines); err != nil {
		return err
	}
	return printSorted(lines, out)
}

// Appends the leaves of a struct, but nothing for what is empty: a missing pointer, "", no items.
func collectValues(of reflect.Value, path string, lines *[]string) error {
	for index := range of.NumField() {
		name, inlined := fieldName(of.Type().Field(index))
		if name == "" && !inlined {
			continue
		}
		if path != "" && !inlined {
			name = path + "." + name
		} else if inlined {
			name = path
		}
		value := of.Field(index)
		for value.Kind() == reflect.Pointer && !value.IsNil() {
			value = value.Elem()
		}
		known := written[value.Type()] != "" || reflect.PointerTo(value.Type()).Implements(unmarshaler)
		var err error
		switch kind := value.Kind(); {
		case kind == reflect.Struct && !known:
			err = collectValues(value, name, lines)
		case kind == reflect.Pointer:
		case (kind == reflect.String || kind == reflect.Slice || kind == reflect.Map) && value.Len() == 0:
		default:
			var text []byte
			text, err = json.Marshal(value.Interface())
			*lines = append(*lines, name+"\t"+string(text))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Types that are written as something else than their fields.
var written = map[reflect.Type]string{
	reflect.TypeOf(metav1.Duration{}):      "duration",
	reflect.TypeOf(metav1.Time{}):          "text",
	reflect.TypeOf(resource.Quantity{}):    "text",
	reflect.TypeOf(runtime.RawExtension{}): "free",
}

// The same, of types that only a part of the minors has.
var named = map[string]string{
	"v1.TimeOrMetaDuration":  "duration",
	"resource.QuantityValue": "text",
}

var unmarshaler = reflect.TypeOf((*json.Unmarshaler)(nil)).Elem()

// The name of a field in JSON; "" if it has none, and whether its own fields take its place.
func fieldName(member reflect.StructField) (name string, inlined bool) {
	name, _, _ = strings.Cut(member.Tag.Get("json"), ",")
	switch {
	case name == "-" || !member.IsExported():
		return "", false
	case name == "" && member.Anonymous:
		return "", true
	case name == "":
		return member.Name, false
	}
	return name, false
}

// Appends the fields of a struct. A path ends in "[]" for the items of a list and in "{}" for the values of a map.
func describe(of reflect.Type, path string, lines *[]string) {
	for index := range of.NumField() {
		member := of.Field(index)
		name, inlined := fieldName(member)
		switch {
		case inlined:
			describe(member.Type, path, lines)
		case name != "":
			if path != "" {
				name = path + "." + name
			}
			*lines = append(*lines, name+"\t"+describeType(member.Type, name, lines))
		}
	}
}

func describeType(of reflect.Type, path string, lines *[]string) string {
	if of.Kind() == reflect.Pointer {
		return describeType(of.Elem(), path, lines)
	}
	if kind, known := written[of]; known {
		return kind
	}
	if reflect.PointerTo(of).Implements(unmarshaler) {
		if kind, known := named[of.String()]; known {
			return kind
		}
		return "unknown " + of.String()
	}
	switch of.Kind() {
	case reflect.Struct:
		describe(of, path, lines)
		return "object"
	case reflect.Slice:
		if of.Elem().Kind() == reflect.Uint8 {
			return "text"
		}
		return "list " + describeType(of.Elem(), path+"[]", lines)
	case reflect.Map:
		return "map " + describeType(of.Elem(), path+"{}", lines)
	case reflect.String:
		return "text"
	default:
		return of.Kind().String()
	}
}
