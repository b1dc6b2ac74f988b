package doctor

import (
	"context"
	"errors"
	"time"

	"github.com/workloadid/workloadid/auth"
)

// watch has the run see what its own requests carry, and give up whatever does not end: SDKs read their profiles and token
// files without a context.
func (e *examination) watch() {
	if e.Client != nil {
		e.watchCluster()
	}
	e.RESTConfig = watchedConfig(e.RESTConfig)
	if e.Trust != nil {
		e.Trust = patientTrust{e.Trust}
	}
	if e.Access != nil {
		e.Access = patientAccess{e.Access}
	}
	e.known.addURL(e.resolved().ProxyURL)
}

// scrub keeps everything secret that the run has come to know out of the report. whole is the context without the time-out.
func (e *examination) scrub(whole context.Context, report *Report) {
	e.secrets() // has the credential that was gained known
	lastly(whole, func(ctx context.Context) { learn(ctx, e.RESTConfig, e.apiServer()) }, e.Timeout)
	report.scrub(e.known.all())
}

// lastly is for what has to be done when the time for the checks is over, or their context.
func lastly(whole context.Context, do func(ctx context.Context), timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(whole), lastWords(timeout))
	defer cancel()
	do(ctx)
}

type patientTrust struct{ reader TrustReader }

func (p patientTrust) ReadTrust(ctx context.Context, query TrustQuery) (*Trust, error) {
	wait := ctx
	if ctx.Err() != nil { // what is at hand is judged all the same; whoever asks the network sees that the time is over
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(context.WithoutCancel(ctx), fileGrace)
		defer cancel()
	}
	return patiently(wait, func() (*Trust, error) { return p.reader.ReadTrust(ctx, query) })
}

type patientAccess struct{ reader AccessReader }

func (p patientAccess) ReadAccess(ctx context.Context, clusterARN, roleARN string) (*Access, error) {
	return patiently(ctx, func() (*Access, error) { return p.reader.ReadAccess(ctx, clusterARN, roleARN) })
}

// patiently calls what has the context, but may forget it: reading a profile from a FIFO or a dead mount, a plugin of its own.
func patiently[T any](ctx context.Context, call func() (T, error)) (T, error) {
	type outcome struct {
		result T
		err    error
	}
	wait := ctx
	if ctx.Err() != nil { // what needs no network is done all the same
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), fileGrace)
		defer cancel()
		wait = grace
	}
	o := until(wait, func() (o outcome) {
		o.result, o.err = call()
		return o
	}, func(err error) outcome { return outcome{err: gaveUp(err)} })
	return o.result, o.err
}

func gaveUp(err error) error {
	message := "there was no answer in time"
	if errors.Is(err, context.Canceled) {
		message = "the examination was interrupted"
	}
	return &auth.Error{Reason: auth.ErrUnavailable, Err: err, Message: message,
		Remedy: "see that the network leads there, and that no profile, token file or plugin that the SDK uses hangs"}
}

// accessToken, clusterAccess and registryCredentials are the calls of the library for the identity under examination.
func (e *examination) accessToken(ctx context.Context) (auth.Token, error) {
	opts := e.options()
	return patiently(ctx, func() (auth.Token, error) { return auth.GetAccessToken(ctx, e.Provider, opts...) })
}

func (e *examination) clusterAccess(ctx context.Context) (*auth.RESTConfig, error) {
	opts := append(e.options(), auth.WithClusterResource(e.Cluster), auth.WithClusterAddress(e.ClusterAddress), auth.WithCAData(e.ClusterCA))
	access, err := patiently(ctx, func() (*auth.RESTConfig, error) { return auth.GetRESTConfig(ctx, e.Provider, opts...) })
	if err == nil {
		e.known.add(access.BearerToken())
	}
	return access, err
}

func (e *examination) registryCredentials(ctx context.Context) (*auth.ArtifactRegistryCredentials, error) {
	opts := e.options()
	credentials, err := patiently(ctx, func() (*auth.ArtifactRegistryCredentials, error) {
		return auth.GetArtifactRegistryCredentials(ctx, e.Provider, e.Repository, opts...)
	})
	if err == nil {
		login, _ := credentials.Authorization() // never fails
		e.known.addLogin(login.Username, login.Password)
	}
	return credentials, err
}
