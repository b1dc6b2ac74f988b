package cli

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

// Output is the flag --output of a command. Its value is one of the command's formats.
type Output struct {
	Format string
	All    []string
}

// OutputFlag adds the flag. The first format is the default.
func OutputFlag(cmd *cobra.Command, formats ...string) *Output {
	o := &Output{formats[0], formats}
	cmd.Flags().VarP(o, "output", "o", o.formats())
	return o
}

func (o *Output) formats() string {
	last := len(o.All) - 1
	return strings.Join(o.All[:last], ", ") + " or " + o.All[last]
}

// String implements pflag.Value.
func (o *Output) String() string { return o.Format }

// Type implements pflag.Value.
func (o *Output) Type() string { return "format" }

// Set implements pflag.Value.
func (o *Output) Set(format string) error {
	if !slices.Contains(o.All, format) {
		return fmt.Errorf("pass %s", o.formats())
	}
	o.Format = format
	return nil
}

// Encode returns value as JSON or YAML. For a table, it returns the columns that table writes.
func (o *Output) Encode(value any, table func(w io.Writer)) ([]byte, error) {
	if o.Format == "table" {
		var b bytes.Buffer
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		table(w)
		err := w.Flush()
		return b.Bytes(), err
	}
	content, err := json.MarshalIndent(value, "", "  ")
	if err == nil && o.Format == "yaml" {
		content, err = yaml.JSONToYAML(content)
	}
	return append(bytes.TrimSpace(content), '\n'), err
}

// Print writes what encode returns to standard output.
func (o *Output) Print(cmd *cobra.Command, value any, table func(w io.Writer)) error {
	content, err := o.Encode(value, table)
	if err == nil {
		_, err = cmd.OutOrStdout().Write(content)
	}
	return err
}

// Row writes the cells of one row of a table. The error appears when the table is flushed.
func Row(w io.Writer, cells ...string) { _, _ = fmt.Fprintln(w, strings.Join(cells, "\t")) }

// Say writes a line to standard output. A cobra command's own Println writes to standard error.
func Say(cmd *cobra.Command, format string, args ...any) error {
	_, err := fmt.Fprintf(cmd.OutOrStdout(), format+"\n", args...)
	return err
}
