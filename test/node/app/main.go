// Command app is an application with an AWS SDK, as tenants run it.
//
//	app             prints its identity at AWS and ends
//	app -every 1s   asks again and again until SIGTERM, then once more
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sts"
)

func main() {
	every := flag.Duration("every", 0, "ask again after this time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if !ask() && *every == 0 {
		os.Exit(1)
	}
	for *every > 0 {
		select {
		case <-time.After(*every):
			ask()
		case <-ctx.Done():
			fmt.Println("SIGTERM")
			if !ask() {
				os.Exit(1)
			}
			return
		}
	}
}

// ask prints the identity and the access key, or the error. A new configuration
// gets new credentials.
func ask() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	identity, key, err := whoAmI(ctx)
	if err != nil {
		fmt.Println("error", err)
		return false
	}
	fmt.Println("identity", identity, key)
	return true
}

func whoAmI(ctx context.Context) (identity, key string, err error) {
	c, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return "", "", err
	}
	credentials, err := c.Credentials.Retrieve(ctx)
	if err != nil {
		return "", "", err
	}
	out, err := sts.NewFromConfig(c).GetCallerIdentity(ctx, nil)
	if err != nil {
		return "", "", err
	}
	return aws.ToString(out.Arn), credentials.AccessKeyID, nil
}
