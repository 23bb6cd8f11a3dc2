// Convert passes plugin outputs through the CNI project's own library: what a plugin printed is read as a runtime reads
// it, and printed again in another version.
//
// Standard input is a JSON list of {"configured", "printed", "wanted"}: the configuration's version, the plugin's output
// and the version to print. Standard output is a JSON list of {"text"} or {"error"}, in the same order.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/version"
)

type request struct {
	Configured string `json:"configured"`
	Printed    string `json:"printed"`
	Wanted     string `json:"wanted"`
}

type answer struct {
	Text  string `json:"text,omitempty"`
	Error string `json:"error,omitempty"`
}

// printed is a plugin that prints itself: the library runs it as it runs an executable.
type printed struct {
	version.PluginDecoder
	output []byte
}

func (p *printed) ExecPlugin(context.Context, string, []byte, []string) ([]byte, error) {
	return p.output, nil
}

func (p *printed) FindInPath(string, []string) (string, error) {
	return "", nil
}

func convert(r request) (text string, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("panic: %v", panicked)
		}
	}()
	config, err := json.Marshal(map[string]string{"cniVersion": r.Configured})
	if err != nil {
		return "", err
	}
	plugin := &printed{output: []byte(r.Printed)}
	result, err := invoke.ExecPluginWithResult(context.Background(), "", config, &invoke.Args{}, plugin)
	if err != nil {
		return "", err
	}
	if result, err = result.GetAsVersion(r.Wanted); err != nil {
		return "", err
	}
	var out bytes.Buffer
	if err = result.PrintTo(&out); err != nil {
		return "", err
	}
	return out.String(), nil
}

func main() {
	var requests []request
	if err := json.NewDecoder(os.Stdin).Decode(&requests); err != nil {
		fmt.Fprintln(os.Stderr, "convert:", err)
		os.Exit(1)
	}
	answers := make([]answer, len(requests))
	for i, r := range requests {
		text, err := convert(r)
		if err != nil {
			answers[i] = answer{Error: err.Error()}
		} else {
			answers[i] = answer{Text: text}
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		fmt.Fprintln(os.Stderr, "convert:", err)
		os.Exit(1)
	}
}
