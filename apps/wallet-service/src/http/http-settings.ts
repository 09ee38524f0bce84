import { parseSection } from '@framework/http';
import { httpSchema as baseSchema, limitsSchema } from '@framework/http/security';
import { Big } from 'big.js';
import { data as currencies } from 'currency-codes';
import * as z from 'zod';

const currencyCodes = new Set(currencies.map(({ code }) => code));

/** The maximum amounts by currency. A number with a fraction is refused, because YAML and JSON would round it. */
const amounts = z
  .record(z.string(), z.unknown(), { error: 'must be a section of currencies' })
  .refine(
    (limits) =>
      Object.entries(limits).every(([code, maximum]) => currencyCodes.has(code) && isExact(maximum)),
    'must have an ISO 4217 code and a maximum in each line, in quotes if it has decimals',
  )
  .transform(
    (limits) => new Map(Object.entries(limits).map(([code, maximum]) => [code, new Big(String(maximum))])),
  )
  .prefault({});

function isExact(maximum: unknown): boolean {
  return typeof maximum === 'number'
    ? Number.isSafeInteger(maximum) && maximum >= 0
    : typeof maximum === 'string' && /^\d{1,20}(\.\d{1,18})?$/.test(maximum);
}

/** The section `framework.http`, with the limits of amounts. */
export const httpSchema = baseSchema.extend({ limits: limitsSchema.safeExtend({ amounts }).prefault({}) });

/** The settings of the section `framework.http`. */
export type HttpSettings = z.output<typeof httpSchema>;

/** The limits for clients. */
export type HttpLimits = HttpSettings['limits'];

/**
 * Validates the section `framework.http`, and completes it with defaults.
 *
 * @throws ConfigurationError `invalid-configuration` with the path of every fault
 */
export function parseHttpSettings(section: Readonly<Record<string, unknown>>): HttpSettings {
  return parseSection('http', httpSchema, section);
}
