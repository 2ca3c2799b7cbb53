// Command kubelet-defaults prints, as JSON, what the kubelet makes of an empty KubeletConfiguration.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/scheme"
)

func main() {
	kubelet, _, err := scheme.NewSchemeAndCodecs()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	configuration := &v1beta1.KubeletConfiguration{}
	kubelet.Default(configuration)
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(configuration); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
