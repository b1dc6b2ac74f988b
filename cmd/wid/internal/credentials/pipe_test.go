package credentials

import (
	"fmt"
	"os"
	"testing"
)

// The secret of an OAuth client may come from another program, though both the cache and the exchange look at it.
func TestClientSecretFromAPipe(t *testing.T) {
	id := parsed(t, "--exchange-client-id=x", "--exchange-client-secret-file="+pipeWith(t, "hunter2"))
	id.key(&source{}, wanted("", nil))
	if secret, err := id.clientSecret(); err != nil || string(secret) != "hunter2" {
		t.Errorf("%q, %v", secret, err)
	}
}

// pipeWith is a name for a pipe that holds that.
func pipeWith(t *testing.T, content string) string {
	t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	if _, err := in.WriteString(content); err != nil || in.Close() != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("/dev/fd/%d", out.Fd())
}
