// Reads a dashboard strictly with Grafana's published types: an unknown field or a wrong type is an error.
package main

import (
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	plugins.RegisterDefaultPlugins()
	content, err := os.ReadFile(os.Args[1])
	if err == nil {
		var read dashboard.Dashboard
		if err = read.UnmarshalJSONStrict(content); err == nil {
			err = read.Validate()
		}
	}
	// The generated code returns an empty list of errors as an error.
	if err != nil && err.Error() != "" {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
