package controlplane

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// TokenWebhook starts an authentication webhook. The API server sends it each
// bearer token that it cannot check itself, and verify returns the user. The
// caller passes the flags to Start, and stops the webhook after the cluster.
func TokenWebhook(verify func(token string) (authenticationv1.UserInfo,
	error)) (flags []Flag, stop func() error, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // does not wait
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "webhook-")
	if err != nil {
		return nil, nil, errors.Join(err, listener.Close())
	}
	server, done := &http.Server{Handler: reviewer(verify), ReadHeaderTimeout: patience}, make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	stop = func() error {
		err := server.Close()
		<-done // ErrServerClosed
		return errors.Join(err, os.RemoveAll(dir))
	}
	file := filepath.Join(dir, "kubeconfig")
	err = clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"webhook": {Server: "http://" + listener.Addr().String()}},
		Contexts:       map[string]*clientcmdapi.Context{"webhook": {Cluster: "webhook"}},
		CurrentContext: "webhook",
	}, file)
	if err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return []Flag{{Name: "authentication-token-webhook-config-file", Value: file},
		{Name: "authentication-token-webhook-version", Value: "v1"}}, stop, nil
}

func reviewer(verify func(token string) (authenticationv1.UserInfo, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		user, err := verify(review.Spec.Token)
		review.Spec = authenticationv1.TokenReviewSpec{}
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: err == nil, User: user}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review) // the API server notices
	}
}
