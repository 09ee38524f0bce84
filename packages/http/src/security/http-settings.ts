import * as z from 'zod';

import { addressRange } from './client-address.js';

/** A whole number within bounds. */
const count = (minimum: number, maximum: number) => {
  const error = `must be a whole number from ${minimum} to ${maximum}`;
  return z.int({ error }).min(minimum, { error }).max(maximum, { error });
};
/** The longest time of a timer. */
const timerMsMax = 2_147_483_647;
const milliseconds = (minimum: number) => count(minimum, timerMsMax);

/** A number of requests within a window of time; `false` for no limit. */
const rate = (requests: number) =>
  z
    .union([z.literal(false), z.strictObject({ requests: count(1, 1_000_000), seconds: count(1, 86_400) })], {
      error: 'must be false, or a section with requests and seconds',
    })
    .default({ requests, seconds: 1 });

const addresses = (byDefault: readonly string[]) =>
  z
    .array(
      z.string().refine((text) => addressRange(text) !== undefined, {
        error: 'must be an address, or a range such as 10.0.0.0/8',
      }),
      { error: 'must be a list of addresses and ranges' },
    )
    .default([...byDefault]);

const url = (...protocols: readonly string[]) =>
  z
    .string()
    .transform((text) => text.replace(/^jdbc:/, ''))
    .refine((text) => protocols.includes(URL.parse(text)?.protocol.slice(0, -1) ?? ''), {
      error: `must be a URL, ${protocols.map((protocol) => `${protocol}://…`).join(' or ')}`,
    });

/**
 * The schema of the section `framework.http.limits`: sizes in bytes, times in milliseconds, and counts, each with a default. An
 * application adds keys of its own with `safeExtend`.
 */
export const limitsSchema = z
  .strictObject({
    bodyBytesMax: count(1_024, 16_777_216).default(65_536),
    headersBytesMax: count(1_024, 1_048_576).default(16_384),
    headersMax: count(16, 10_000).default(1_000),
    connectionsMax: count(1, 1_000_000).default(4_000),
    connectionsPerAddressMax: count(1, 1_000_000).default(256),
    headersTimeoutMs: milliseconds(100).default(10_000),
    requestTimeoutMs: milliseconds(100).default(30_000),
    idleTimeoutMs: milliseconds(100).default(5_000),
    answerTimeoutMs: milliseconds(100).default(30_000),
    requestsPerShardMax: count(1, 1_000_000).default(512),
    perAddress: rate(100),
    perPrincipal: rate(50),
    sharedBy: z
      .union(
        [
          z.strictObject({ redis: url('redis', 'rediss') }),
          z.strictObject({ postgresql: url('postgresql', 'postgres') }),
        ],
        {
          error: 'must be a section with the URL of either redis or postgresql',
        },
      )
      .optional(),
    unlimitedAddresses: addresses(['127.0.0.0/8', '::1']),
  })
  .refine(({ headersTimeoutMs, requestTimeoutMs }) => headersTimeoutMs <= requestTimeoutMs, {
    path: ['headersTimeoutMs'],
    error: 'must not be longer than request-timeout-ms',
  });

/** The limits for clients. */
export type HttpLimits = z.output<typeof limitsSchema>;

const file = z.string().min(1, 'is empty: name a file');
const tlsVersions = ['TLSv1.2', 'TLSv1.3'] as const;

/** The schema of the section `framework.http.tls`: the files of the certificate and of its key, in PEM, and the oldest version of TLS. */
export const tlsSchema = z.strictObject({
  certFile: file,
  keyFile: file,
  minVersion: z.enum(tlsVersions, { error: `must be one of ${tlsVersions.join(', ')}` }).default('TLSv1.2'),
});

/** The settings of TLS. */
export type TlsSettings = z.output<typeof tlsSchema>;

const originIssue =
  'must be * or an origin, such as https://app.example: scheme, host, and port unless it is the default one';

/** The schema of the section `framework.http.cors`: the origins whose pages may send requests, and whether with credentials. */
export const corsSchema = z
  .strictObject({
    origins: z
      .array(
        z.string().refine((text) => text === '*' || URL.parse(text)?.origin === text, { error: originIssue }),
      )
      .min(1, 'is empty: name an origin, or leave cors out'),
    credentials: z.boolean().default(false),
  })
  .refine(({ origins, credentials }) => !(credentials && origins.includes('*')), {
    error: 'must not have credentials for every origin: name the origins',
  });

/** The settings for requests from pages of other origins. */
export type CorsSettings = z.output<typeof corsSchema>;

/** The schema of the section `framework.http`. Without `tls`, the listener speaks plain HTTP; without `cors`, browsers allow no other origin. */
export const httpSchema = z.strictObject({
  limits: limitsSchema.prefault({}),
  trustedProxies: addresses([]),
  tls: tlsSchema.optional(),
  cors: corsSchema.optional(),
});

/** The settings of the section `framework.http`. */
export type HttpSettings = z.output<typeof httpSchema>;
