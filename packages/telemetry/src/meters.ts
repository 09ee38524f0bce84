import { type Meter, type MeterProvider, metrics } from '@opentelemetry/api';

/** One SDK that gets what is measured, or several, such as that of a program and one that serves what Prometheus reads. */
export type MeterProviders = MeterProvider | readonly MeterProvider[];

/** The name under which spans and metrics are recorded. */
export const scope = '@framework/telemetry';

/** @param providers default: that of the SDK that is registered with `@opentelemetry/api`, if there is one */
export function metersOf(providers: MeterProviders = metrics): readonly Meter[] {
  return [providers].flat().map((provider) => provider.getMeter(scope));
}
