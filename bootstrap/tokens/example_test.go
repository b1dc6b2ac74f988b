package tokens_test

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/bootstrap/tokens"
)

// An administrator makes a token for an hour, lists the tokens, and takes it
// back.
func Example() {
	ctx := context.Background()
	manager := tokens.Manager{Client: fake.NewClientBuilder().Build()}
	created, err := manager.Create(ctx, bootstrap.TokenConfig{Expires: time.Now().Add(time.Hour),
		Usages: []string{bootstrap.UsageSigning, bootstrap.UsageAuthentication}, Description: "for the new rack"})
	if err != nil {
		fmt.Println(err)
		return
	}
	list, err := manager.List(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, token := range list {
		fmt.Println(token.Config.Description, token.Config.Usages)
	}
	fmt.Println(manager.Delete(ctx, created.Token.ID()))
	list, err = manager.List(ctx)
	fmt.Println(len(list), err)
	// Output:
	// for the new rack [authentication signing]
	// <nil>
	// 0 <nil>
}
