package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/workloadid/workloadid/auth/aws"
)

// The kubelet's own types, in both directions.
func TestKubeletCredentialProvider(t *testing.T) {
	w := newWorld(t)
	request, err := json.Marshal(kubeletv1.CredentialProviderRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: kubeletv1.SchemeGroupVersion.String(), Kind: "CredentialProviderRequest"},
		Image:    registryHost + "/team/app", ServiceAccountToken: w.jwt(t, aws.DefaultAudience), ServiceAccountAnnotations: annotations(),
	})
	if err != nil {
		t.Fatal(err)
	}
	out := w.mustWid(t, string(request), "kubelet-credential-provider")
	var response kubeletv1.CredentialProviderResponse
	decoder := json.NewDecoder(strings.NewReader(out))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&response); err != nil {
		t.Fatal(err)
	}
	login, ok := response.Auth[registryHost]
	if id, valid := w.cloud.AWS().ValidRegistryPassword(registryHost, login.Username, login.Password); !ok || !valid || id.RoleARN != role("tenant-a") || id.SessionName != "tenant-a.app" {
		t.Errorf("the password is of %+v", id)
	}
	if response.APIVersion != "credentialprovider.kubelet.k8s.io/v1" || response.Kind != "CredentialProviderResponse" || response.CacheKeyType != kubeletv1.RegistryPluginCacheKeyType ||
		response.CacheDuration == nil || response.CacheDuration.Duration != time.Hour {
		t.Errorf("got %s %s by %s for %v", response.APIVersion, response.Kind, response.CacheKeyType, response.CacheDuration)
	}
	// Another repository of the registry costs nothing.
	if another := w.mustWid(t, strings.Replace(string(request), "team/app", "team/other", 1), "kubelet-credential-provider"); w.mints() != 1 || !strings.Contains(another, login.Password) {
		t.Errorf("%d exchanges", w.mints())
	}
}
