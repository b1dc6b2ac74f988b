package joincmd

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/workloadid/workloadid/cmd/wid/internal/install"
)

// An agent without a credential cannot tell the hub, and there is nothing to withdraw.
func TestUnjoinOfAClusterThatNeverJoined(t *testing.T) {
	var out strings.Builder
	cmd := NewUnjoin()
	cmd.SetErr(&out)
	err := withdraw(t.Context(), cmd, fake.NewClientBuilder().Build(), "shop", &install.ClusterARNs{}, false)
	if err != nil || !strings.Contains(out.String(), "no credential of its own yet") || !strings.Contains(out.String(), "wid hub deny --clusters shop") {
		t.Errorf("unjoin says %q, %v", out.String(), err)
	}
}
