package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

// exitStatus ends the program with a code after its answer has been written.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// doctorFlags are the flags of wid doctor that the other commands do not have.
type doctorFlags struct {
	id *identity

	output           string
	container        string
	inPod            bool
	registry         string
	cluster          string
	clusterAddress   string
	clusterCA        string
	issuer, jwksFile string
	trustFile        string
	trustLive        bool
	showPolicy       bool
	helper           string
	skip             []string
	issuerClient     *http.Client // of tests
}

func (a *app) newDoctor() *cobra.Command { return a.doctorCommand(&doctorFlags{}) }

func (a *app) doctorCommand(d *doctorFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find out why a ServiceAccount gets no credentials",
		Long: "Find out why a ServiceAccount gets no credentials: 25 checks from the token to the registry, each with what was\n" +
			"observed beside what was expected. Tokens are never shown. From a workstation it uses the kubeconfig, in a pod without\n" +
			"--service-account it examines the pod's own environment.\n\n" +
			"Exit codes: 0 all passed, 1 something failed, 2 wrong usage, 3 nothing failed, but something is unknown or doubtful.",
		Example: "  wid doctor --provider aws --service-account tenant-a/app --region eu-central-1\n" +
			"  wid doctor --provider azure --service-account tenant-a/app --pod tenant-a/app-5f7c --registry example.azurecr.io/app\n" +
			"  wid doctor --provider gcp --service-account tenant-a/app --trust-file trust.json -o json\n" +
			"  kubectl exec app-5f7c -- wid doctor --provider aws\n" +
			"  wid doctor --provider aws --token-file token --annotation eks.amazonaws.com/role-arn=$ROLE --region eu-central-1",
		Args: exactly(cobra.NoArgs),
	}
	d.id = a.newIdentity(cmd)
	d.id.examines = true
	f := cmd.Flags()
	f.StringVarP(&d.output, "output", "o", "text", "text or json")
	f.StringVar(&d.id.pod, "pod", "", "the pod that gets no credentials, namespace/name; its ServiceAccount if none is named")
	f.StringVar(&d.container, "container", "", "the container of the pod that gets no credentials; else all are judged")
	f.BoolVar(&d.inPod, "in-pod", false, "examine the environment of this pod; so it is in a pod without --service-account")
	f.StringVar(&d.registry, "registry", "", "artifact repository to pull from, host/name")
	f.StringVar(&d.cluster, "cluster", "", "cluster to reach, its full name in the provider's API")
	f.StringVar(&d.clusterAddress, "cluster-address", "", "address of the cluster to reach")
	f.StringVar(&d.clusterCA, "cluster-ca-file", "", "file with the certificate authority of the cluster to reach")
	f.StringVar(&d.issuer, "issuer", "", "the issuer that the cloud has been told to trust")
	f.StringVar(&d.jwksFile, "jwks-file", "", "file with the keys that were uploaded to the cloud")
	f.StringVar(&d.trustFile, "trust-file", "", "file with what the cloud trusts, as aws, az or gcloud print it")
	f.BoolVar(&d.trustLive, "trust-live", false, "ask the cloud what it trusts, with your own login for it (aws, az, gcloud)")
	f.BoolVar(&d.showPolicy, "show-policy", false, "also print the commands that have a cloud trust more")
	f.StringVar(&d.helper, "helper", "", "address of an endpoint for credentials; else AWS_CONTAINER_CREDENTIALS_FULL_URI in a pod")
	f.StringSliceVar(&d.skip, "skip", nil, "names of checks to leave out")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		code := 0
		err := d.id.run(cmd, func(ctx context.Context) ([]byte, error) {
			report, err := d.examine(ctx, cmd)
			if err != nil {
				return nil, err
			}
			code = report.ExitCode()
			return d.print(report)
		})
		return d.exit(code, err)
	}
	cmd.AddCommand(newDoctorBootstrap(), newDoctorEnrolment())
	return cmd
}

// exit makes every mistake before the first check one of usage: 1 and 3 are verdicts.
func (*doctorFlags) exit(code int, err error) error {
	var usage *usageError
	switch {
	case err == nil && code == 0:
		return nil
	case err == nil:
		return exitStatus(code)
	case errors.As(err, &usage):
		return err
	}
	return usagef("%v", err)
}

func (d *doctorFlags) print(report *doctor.Report) ([]byte, error) {
	if d.output == "json" {
		content, err := json.MarshalIndent(report, "", "  ")
		return append(content, '\n'), err
	}
	return []byte(report.String()), nil
}

func (d *doctorFlags) examine(ctx context.Context, cmd *cobra.Command) (*doctor.Report, error) {
	config, err := d.config()
	if err != nil {
		return nil, err
	}
	if d.id.tokenStdin {
		if config.Token, err = d.id.readToken(ctx, cmd); err != nil {
			return nil, err
		}
	}
	report := doctor.Run(ctx, *config)
	for i := range report.Findings {
		d.inTermsOfFlags(&report.Findings[i])
	}
	return report, nil
}

// config gathers what the flags say. It uses no network.
func (d *doctorFlags) config() (*doctor.Config, error) {
	if err := d.checkOutput(doctor.Checks()); err != nil {
		return nil, err
	}
	provider, err := d.id.named()
	if err != nil {
		return nil, err
	}
	opts, err := d.id.options()
	if err != nil {
		return nil, err
	}
	config := &doctor.Config{Provider: provider, TokenFile: d.id.tokenFile, InPod: d.inPod, Issuer: d.issuer, Repository: d.registry,
		Cluster: d.cluster, ClusterAddress: d.clusterAddress, Helper: d.helper, ShowPolicy: d.showPolicy, Skip: d.skip, IssuerClient: d.issuerClient,
		Timeout: d.id.timeout, Identify: d.identify}
	// The tenant's own choice of an audience is examined, not judged.
	config.Options = append(opts, auth.WithPolicy(auth.Policy{AllowAnyAudience: true}))
	if err := d.names(config); err != nil {
		return nil, err
	}
	if err := d.files(config); err != nil {
		return nil, err
	}
	if err := d.live(config); err != nil {
		return nil, err
	}
	return config, d.connect(config)
}

// checkOutput judges the flags that decide what of the report is wanted, and how.
func (d *doctorFlags) checkOutput(checks []doctor.Check) error {
	if d.output != "text" && d.output != "json" {
		return usagef("--output is text or json, not %.100q", d.output)
	}
	var known []string
	for _, c := range checks {
		known = append(known, c.ID)
	}
	for _, id := range d.skip {
		if !slices.Contains(known, id) {
			return usagef("--skip %.100q is no check; there are %s", id, strings.Join(known, ", "))
		}
	}
	return nil
}

// names reads the flags that name objects.
func (d *doctorFlags) names(config *doctor.Config) (err error) {
	if d.id.serviceAccount != "" {
		if config.ServiceAccount, err = parseServiceAccount(d.id.serviceAccount); err != nil {
			return err
		}
	}
	if d.id.pod != "" {
		namespace, name, ok := strings.Cut(d.id.pod, "/")
		if !ok || namespace == "" || name == "" {
			return usagef("--pod is namespace/name, not %.300q", d.id.pod)
		}
		config.Pod = client.ObjectKey{Namespace: namespace, Name: name}
	}
	if config.Container = d.container; d.container != "" && d.id.pod == "" {
		return usagef("--container needs --pod")
	}
	if len(d.id.annotations) > 0 {
		config.Annotations, err = parseAnnotations(d.id.annotations)
	}
	inAnyPod := os.Getenv("KUBERNETES_SERVICE_HOST") != ""
	if inAnyPod && config.ServiceAccount.Name == "" && !d.id.hasToken() && !d.id.namesCluster() {
		config.InPod = true
	}
	return err
}

// files reads those that flags name.
func (d *doctorFlags) files(config *doctor.Config) error {
	read := func(flag, path string) ([]byte, error) {
		if path == "" {
			return nil, nil
		}
		content, err := readBounded(path)
		if err != nil {
			return nil, usagef("--%s: %v", flag, err)
		}
		return content, nil
	}
	ca, err := read("cluster-ca-file", d.clusterCA)
	if err != nil {
		return err
	}
	config.ClusterCA = string(ca)
	if config.JWKS, err = read("jwks-file", d.jwksFile); err != nil {
		return err
	}
	trust, err := read("trust-file", d.trustFile)
	if err != nil || trust == nil {
		return err
	}
	if config.Trust, err = doctor.ParseTrust(trust); err != nil {
		return usagef("--trust-file: %v", err)
	}
	return nil
}

// connect finds the cluster of the ServiceAccount: this one in a pod, and for callers that hold a token only one that is named.
func (d *doctorFlags) connect(config *doctor.Config) (err error) {
	switch {
	case d.id.hasToken() && !d.id.namesCluster():
		return nil
	case config.InPod:
		if config.RESTConfig, err = rest.InClusterConfig(); err != nil {
			config.RESTConfig = nil
			return nil //nolint:nilerr // the checks that need it tell
		}
	case config.ServiceAccount.Name == "" && d.id.pod == "" && !d.id.hasToken():
		return nil
	default:
		if config.RESTConfig, err = d.id.clusterConfig(); err != nil {
			return err
		}
	}
	config.Client, err = newDoctorClient(config.RESTConfig)
	return err
}
