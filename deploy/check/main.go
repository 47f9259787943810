// Command check looks at what deploy/ has for Docker and Kubernetes where there
// is neither: at a Dockerfile with BuildKit's own parser and rules, at a compose
// file with the parser that docker compose has, and at Kubernetes objects with
// the API's own types. make deploy-check runs it.
//
//	check dockerfile FILE
//	check compose FILE ENV_FILE
//	check kubernetes FILE
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/moby/buildkit/client/llb"
	"github.com/moby/buildkit/client/llb/sourceresolver"
	"github.com/moby/buildkit/frontend/dockerfile/dockerfile2llb"
	"github.com/opencontainers/go-digest"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	switch {
	case len(args) == 2 && args[0] == "dockerfile":
		return dockerfile(ctx, args[1], stdout)
	case len(args) == 3 && args[0] == "compose":
		return compose(ctx, args[1], args[2], stdout)
	case len(args) == 2 && args[0] == "kubernetes":
		return kubernetes(args[1], stdout)
	default:
		return fmt.Errorf("usage: check dockerfile FILE | compose FILE ENV_FILE | kubernetes FILE")
	}
}

// dockerfile plans the build as BuildKit would, and runs its rules.
func dockerfile(ctx context.Context, path string, stdout io.Writer) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	source := llb.NewSourceMap(nil, path, "Dockerfile", text)
	source.Definition = &llb.Definition{}
	options := dockerfile2llb.ConvertOpt{MetaResolver: offline{}, SourceMap: source}
	found, err := dockerfile2llb.DockerfileLint(ctx, text, options)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if found.Error != nil {
		return fmt.Errorf("%s: %s", path, found.Error.Message)
	}
	for _, w := range found.Warnings {
		fmt.Fprintf(stdout, "%s:%d: %s: %s\n", path, w.Location.Ranges[0].Start.Line, w.RuleName, w.Detail)
	}
	if n := len(found.Warnings); n > 0 {
		return fmt.Errorf("%s breaks %d of BuildKit's rules", path, n)
	}
	fmt.Fprintf(stdout, "%s: BuildKit's rules are kept\n", path)
	return nil
}

// offline knows nothing of the images that a build starts from.
type offline struct{}

func (offline) ResolveImageConfig(_ context.Context, ref string, _ sourceresolver.Opt) (string, digest.Digest, []byte, error) {
	return ref, digest.FromString(ref), []byte(`{"architecture": "amd64", "os": "linux", "config": {}}`), nil
}

// compose loads a file as `docker compose config` does: its schema, its
// variables, and that what it names is there.
func compose(ctx context.Context, path, env string, stdout io.Writer) error {
	options, err := cli.NewProjectOptions([]string{path}, cli.WithEnvFiles(env), cli.WithDotEnv)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	project, err := options.LoadProject(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	mounted := 0
	for _, service := range project.Services {
		for _, volume := range service.Volumes {
			if volume.Type != "bind" {
				continue
			}
			if _, err := os.Stat(volume.Source); err != nil {
				return fmt.Errorf("%s: service %s: %w", path, service.Name, err)
			}
			mounted++
		}
	}
	fmt.Fprintf(stdout, "%s: %d services, %d files of ours mounted\n", path, len(project.Services), mounted)
	return nil
}
