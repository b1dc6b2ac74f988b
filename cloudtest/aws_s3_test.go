package cloudtest_test

import (
	"strings"
	"testing"

	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

func TestAnonymousRequestsToBuckets(t *testing.T) {
	cloud := testenv.Cloud(t)
	for name, public := range map[string]bool{"public": true, "private": false} {
		cloud.AWS().SetBucket(name, cloudtest.S3Bucket{Account: "123456789012", Region: "eu-west-2", Public: public})
	}
	for request, want := range map[string]int{
		"GET https://public.s3.eu-west-2.amazonaws.com/missing":     404,
		"GET https://s3.eu-west-2.amazonaws.com/public/missing":     404,
		"PUT https://public.s3.eu-west-2.amazonaws.com/mine":        403,
		"GET https://private.s3.eu-west-2.amazonaws.com/missing":    403,
		"GET https://public.s3.eu-west-1.amazonaws.com/missing":     301,
		"GET https://nobodys.s3.eu-west-2.amazonaws.com/missing":    404,
		"DELETE https://public.s3.eu-west-2.amazonaws.com/missing":  405,
		"GET https://public.s3.eu-west-2.amazonaws.com/":            405,
		"GET https://s3.eu-west-2.amazonaws.com/private/x?x-id=Get": 403,
	} {
		t.Run(request, func(t *testing.T) {
			method, url, _ := strings.Cut(request, " ")
			if status, _, _ := send(t, cloud, method, url, ""); status != want {
				t.Errorf("HTTP %d, want %d", status, want)
			}
		})
	}
}
