package cli

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// Texts of flags stay within 80 columns, whole, in one column.
func TestHelpWrapsTheTextsOfFlags(t *testing.T) {
	text := strings.TrimSpace(strings.Repeat("a long explanation of --service-account-max-token-expiration; ", 8))
	var out bytes.Buffer
	cmd := &cobra.Command{Use: "x", Short: "X", RunE: func(*cobra.Command, []string) error { return nil }}
	cmd.SetOut(&out)
	cmd.Flags().StringP("short", "s", "", "beside its name")
	cmd.Flags().String("addon-kubeclient-registration-auth", "csr", text)
	cmd.Flags().Bool("flag", false, text)
	cmd.Flags().String("registration-auth", "", "fills its column")
	Finish(cmd)
	if err := Help(cmd); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if width := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); width > 80 {
			t.Errorf("%d columns: %s", width, line)
		}
	}
	if got := strings.Join(strings.Fields(out.String()), " "); strings.Count(got, text) != 2 ||
		!strings.Contains(got, "--registration-auth string fills") ||
		!regexp.MustCompile(`(?m)^  -s, --short string +beside its name$`).MatchString(out.String()) ||
		!strings.Contains(got, text+` (default "csr")`) {
		t.Errorf("%s", out.String())
	}
}
