package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// output is the flag --output of a command. Its value is one of the command's formats.
type output struct {
	format string
	all    []string
}

// outputFlag adds the flag. The first format is the default.
func outputFlag(cmd *cobra.Command, formats ...string) *output {
	o := &output{formats[0], formats}
	cmd.Flags().VarP(o, "output", "o", o.formats())
	return o
}

func (o *output) formats() string {
	last := len(o.all) - 1
	return strings.Join(o.all[:last], ", ") + " or " + o.all[last]
}

func (o *output) String() string { return o.format }

func (o *output) Type() string { return "format" }

func (o *output) Set(format string) error {
	if !slices.Contains(o.all, format) {
		return fmt.Errorf("pass %s", o.formats())
	}
	o.format = format
	return nil
}

// encode returns value as JSON or YAML. For a table, it returns the columns that table writes.
func (o *output) encode(value any, table func(w io.Writer)) ([]byte, error) {
	if o.format == "table" {
		var b bytes.Buffer
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		table(w)
		err := w.Flush()
		return b.Bytes(), err
	}
	content, err := json.MarshalIndent(value, "", "  ")
	if err == nil && o.format == "yaml" {
		content, err = yaml.JSONToYAML(content)
	}
	return append(bytes.TrimSpace(content), '\n'), err
}

// print writes what encode returns to standard output.
func (o *output) print(cmd *cobra.Command, value any, table func(w io.Writer)) error {
	content, err := o.encode(value, table)
	if err == nil {
		_, err = cmd.OutOrStdout().Write(content)
	}
	return err
}

// row writes the cells of one row of a table. The error appears when the table is flushed.
func row(w io.Writer, cells ...string) { _, _ = fmt.Fprintln(w, strings.Join(cells, "\t")) }

// say writes a line to standard output. A cobra command's own Println writes to standard error.
func say(cmd *cobra.Command, format string, args ...any) error {
	_, err := fmt.Fprintf(cmd.OutOrStdout(), format+"\n", args...)
	return err
}
