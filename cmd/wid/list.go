package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/bootstrap/tokens"
	"github.com/workloadid/workloadid/internal/redact"
)

// listed is a token in the output of list. Whoever may read the Secrets may see the whole token.
type listed struct {
	Token       string   `json:"token,omitempty"`
	Name        string   `json:"name"`
	Expires     string   `json:"expires,omitempty"`
	Usages      []string `json:"usages,omitempty"`
	Groups      []string `json:"groups,omitempty"`
	Description string   `json:"description,omitempty"`
	Error       string   `json:"error,omitempty"`
}

func newList(c *cluster) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the tokens of the cluster",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := c.tokens()
			if err != nil {
				return err
			}
			all, err := m.List(cmd.Context())
			if err != nil {
				return err
			}
			rows, bad := toRows(all)
			if err := printList(cmd.OutOrStdout(), output, rows); err != nil {
				return err
			}
			if bad > 0 {
				return fmt.Errorf("%d of %d tokens are malformed", bad, len(rows))
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table, json or yaml")
	return cmd
}

func toRows(all []tokens.Listed) (rows []listed, bad int) {
	rows = []listed{}
	for _, l := range all {
		if l.Err != nil {
			rows, bad = append(rows, listed{Name: l.Name, Error: l.Err.Error()}), bad+1
			continue
		}
		row := listed{Token: l.Config.Token.Reveal(), Name: l.Name, Usages: l.Config.Usages, Groups: l.Config.Groups, Description: l.Config.Description}
		if !l.Config.Expires.IsZero() {
			row.Expires = l.Config.Expires.UTC().Format(time.RFC3339)
		}
		rows = append(rows, row)
	}
	return rows, bad
}

func printList(out io.Writer, format string, rows []listed) error {
	list := map[string]any{"kind": "List", "items": rows}
	switch format {
	case "json":
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(list)
	case "yaml":
		encoded, err := yaml.Marshal(list)
		if err == nil {
			_, err = out.Write(encoded)
		}
		return err
	case "table":
		return printTable(out, rows)
	}
	return fmt.Errorf("--output is table, json or yaml, not %q", format)
}

// printTable keeps what strangers wrote to one line each, and away from the terminal's controls.
func printTable(out io.Writer, rows []listed) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "TOKEN\tTTL\tEXPIRES\tUSAGES\tEXTRA GROUPS\tDESCRIPTION") // Flush tells
	for _, r := range rows {
		if r.Error != "" {
			_, _ = fmt.Fprintf(w, "<%s>\t\t\t\t\t%s\n", r.Name, redact.Text(r.Error))
			continue
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.Token, ttl(r.Expires), orNever(r.Expires),
			strings.Join(r.Usages, ","), strings.Join(r.Groups, ","), redact.Text(r.Description))
	}
	return w.Flush()
}

func ttl(expires string) string {
	end, err := time.Parse(time.RFC3339, expires)
	if err != nil {
		return "<forever>"
	}
	return time.Until(end).Round(time.Second).String()
}

func orNever(expires string) string {
	if expires == "" {
		return "<never>"
	}
	return expires
}

func end(expires time.Time) string {
	if expires.IsZero() {
		return "never"
	}
	return expires.UTC().Format(time.RFC3339)
}
