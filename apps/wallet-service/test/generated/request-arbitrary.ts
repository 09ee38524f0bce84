import * as fc from 'fast-check';
import {
  amounts,
  currencies,
  movingIds,
  names,
  oddBodies,
  oddHeaders,
  oddIds,
  oddQueries,
  oddTexts,
  otherMethods,
  otherPaths,
} from './odd-values.js';
import type { DocumentedAnswers, Operation, RequestSchema } from './documented-answers.js';

/** A request as it is sent over the wire. */
export interface GeneratedRequest {
  readonly method: string;
  /** The operation that it is meant for; without it, the path or the method is not a documented one. */
  readonly operation: Operation | undefined;
  /** The bytes, in pieces that are sent one after the other. */
  readonly pieces: readonly Buffer[];
  /** The body, if it is JSON. */
  readonly json: string | undefined;
  /** Whether the document allows it, so that it must not be refused for its form. */
  readonly isDescribed: boolean;
  /** Whether it leaves the connection in a state in which nothing can follow: the client then ends its side. */
  readonly isLast: boolean;
}

/** The wallets and owners that the requests use. */
export interface Subjects {
  readonly documented: DocumentedAnswers;
  readonly walletIds: readonly string[];
  /** The wallets in `walletIds` that may be closed; the others stay open. */
  readonly closableIds: readonly string[];
  readonly transferIds: readonly string[];
  readonly ownerIds: readonly string[];
}

/** A request before it is serialised. */
interface Draft {
  readonly operation: Operation;
  readonly path: string;
  readonly query: string;
  readonly json: string | undefined;
  readonly headers: readonly string[];
}

/** Requests to all operations, and to none: as the document describes them, broken, and hostile. */
export function requestArbitrary(subjects: Subjects): fc.Arbitrary<GeneratedRequest> {
  const described = fc.constantFrom(...subjects.documented.operations).chain((each) => draft(each, subjects));
  return fc.oneof(
    { weight: 6, arbitrary: described.chain((each) => wire(each, { isDescribed: true })) },
    { weight: 4, arbitrary: described.chain(broken).chain((each) => wire(each)) },
    { weight: 1, arbitrary: otherAddress(described) },
    { weight: 3, arbitrary: described.chain(hostile) },
  );
}

/** Requests generated from the document. */
function draft(operation: Operation, subjects: Subjects): fc.Arbitrary<Draft> {
  const { parameters = [], requestBody } = operation;
  const { walletIds, closableIds, transferIds } = subjects;
  const ofWallets = operation.path.endsWith('/close') ? closableIds : walletIds;
  const ids = operation.path.startsWith('/transfers') ? transferIds : ofWallets;
  const known = fc.oneof(
    { weight: 8, arbitrary: fc.constantFrom(...ids) },
    { weight: 1, arbitrary: fc.uuid() },
    { weight: 1, arbitrary: fc.constantFrom(...ids).map((id) => id.toUpperCase()) },
  );
  const values = parameters.map(({ name, in: place, required = false, schema }) => {
    // A cursor is described as the `next` of the previous page; there is none here.
    if (name === 'cursor') return fc.constant(undefined);
    const value = place === 'path' ? known : valueOf(schema, name, subjects).map(String);
    const line = value.map((text) => ({ name, place, text }));
    return required ? line : fc.option(line, { nil: undefined });
  });
  const body = requestBody?.content['application/json'].schema;
  const json = body === undefined ? fc.constant(undefined) : jsonOf(body, subjects);
  return fc.tuple(fc.tuple(...values), json, fc.boolean()).map(([lines, text, isLeftOut]) => {
    const given = lines.filter((line) => line !== undefined);
    const of = (place: string) => given.filter((line) => line.place === place);
    return {
      operation,
      path: of('path').reduce((path, line) => path.replace(`{${line.name}}`, line.text), operation.path),
      query: of('query')
        .map((line) => `${line.name}=${encodeURIComponent(line.text)}`)
        .join('&'),
      json: isLeftOut && requestBody?.required === false ? undefined : text,
      headers: of('header').map((line) => `${line.name}: ${line.text}`),
    };
  });
}

function jsonOf(schema: RequestSchema, subjects: Subjects): fc.Arbitrary<string> {
  const { properties = {}, required = [] } = subjects.documented.schema(schema);
  const fields = Object.entries(properties).map(([name, field]) => {
    const member = valueOf(field, name, subjects).chain((value) =>
      fc.boolean().map((asNumber) => {
        const isNumber = asNumber && field.type !== 'string' && Array.isArray(field.type);
        return `${JSON.stringify(name)}:${isNumber ? String(value) : JSON.stringify(value)}`;
      }),
    );
    return required.includes(name) ? member : fc.option(member, { nil: undefined });
  });
  return fc.tuple(...fields).map((members) => `{${members.filter((each) => each !== undefined).join(',')}}`);
}

/** A value that a schema allows, and that usually passes the later checks, too. */
function valueOf(
  schema: RequestSchema,
  name: string,
  { walletIds, ownerIds }: Subjects,
): fc.Arbitrary<string | number> {
  if (schema.type === 'integer') return fc.integer({ min: schema.minimum ?? 0, max: schema.maximum ?? 100 });
  const { pattern } = schema;
  const any =
    schema.format === 'uuid'
      ? fc.uuid()
      : fc.stringMatching(pattern === undefined ? /^.{0,9}$/u : new RegExp(pattern, 'u'), { maxLength: 30 });
  const telling: Readonly<Record<string, readonly string[]>> = {
    sourceId: walletIds,
    destId: walletIds,
    ownerId: ownerIds,
    country: ['MX', 'DE', 'mx', ...names],
    currency: [...currencies, ...currencies, ...currencies, 'eur', 'XXX', 'ZZZ', '__proto__'],
    amount: amounts,
    initialBalance: amounts,
  };
  // Most keys are new: a repeated one mostly belongs to a different request.
  if (name === 'Idempotency-Key')
    return fc.oneof({ weight: 9, arbitrary: fc.uuid() }, fc.constantFrom('a', 'b', '~'), any);
  const known = telling[name];
  return known === undefined
    ? any
    : fc.oneof({ weight: 15, arbitrary: fc.constantFrom(...known) }, { weight: 1, arbitrary: any });
}

/** The draft with one change that the document does not allow. */
function broken(draftOf: Draft): fc.Arbitrary<Draft> {
  const { path, query, json, headers } = draftOf;
  return fc.oneof(
    fc.constantFrom(...oddIds).map((id) => ({ ...draftOf, path: path.replace(/[^/]{36}/, () => id) })),
    fc
      .constantFrom(...oddQueries)
      .map((odd) => ({ ...draftOf, query: query === '' ? odd : `${query}&${odd}` })),
    fc.constantFrom(...oddHeaders).map((header) => ({ ...draftOf, headers: [...headers, header] })),
    fc.constantFrom(...oddBodies).map((body) => ({ ...draftOf, json: body })),
    fc
      .tuple(fc.constantFrom(...oddTexts), fc.nat(5))
      .map(([text, place]) => ({ ...draftOf, json: withMember(json, text, place) })),
    fc.json({ maxDepth: 4 }).map((body) => ({ ...draftOf, json: body })),
  );
}

/** The JSON object with the text as the value of one member, or as the name of an additional one. */
function withMember(json = '{}', text: string, place: number): string {
  const members = Object.entries(JSON.parse(json) as object).map(([name, value]) => [
    name,
    JSON.stringify(value),
  ]);
  const member = members[place % (members.length + 1)];
  if (member === undefined) members.push([text, '1']);
  else member[1] = JSON.stringify(text);
  return `{${members.map(([name, value]) => `${JSON.stringify(name)}:${value}`).join(',')}}`;
}

/** Undocumented requests: other methods, and other paths. */
function otherAddress(described: fc.Arbitrary<Draft>): fc.Arbitrary<GeneratedRequest> {
  const method = described.chain((each) =>
    fc.constantFrom(...otherMethods).chain((other) => wire({ ...each, json: undefined }, { method: other })),
  );
  const head = described
    .filter(({ operation }) => operation.method === 'GET')
    .chain((each) => wire(each, { method: 'HEAD', isDescribed: true }));
  const path = described.chain((each) =>
    fc.constantFrom(...otherPaths).chain((other) => wire({ ...each, path: other }, { isElsewhere: true })),
  );
  const moved = described
    .filter(({ operation }) => operation.path.includes('{'))
    .chain((each) =>
      fc
        .constantFrom(...movingIds)
        .chain((id) => wire({ ...each, path: each.path.replace(/[^/]{36}/, id) }, { isElsewhere: true })),
    );
  return fc.oneof(method, head, path, moved);
}

/** Serialises a request, its body whole or in chunks, and cut into pieces anywhere. */
function wire(
  { operation, path, query, json, headers }: Draft,
  options: { readonly method?: string; readonly isDescribed?: boolean; readonly isElsewhere?: boolean } = {},
): fc.Arbitrary<GeneratedRequest> {
  const method = options.method ?? operation.method;
  const target = query === '' ? path : `${path}?${query}`;
  const isMeant = method === operation.method || method === 'HEAD';
  return fc
    .record({
      isChunked: fc.boolean(),
      size: fc.integer({ min: 1, max: 50 }),
      cuts: fc.array(fc.nat(400), { maxLength: 3 }),
    })
    .map(({ isChunked, size, cuts }) => {
      const body = Buffer.from(json ?? '');
      const type = headers.some((header) => header.startsWith('content-type'))
        ? []
        : ['content-type: application/json'];
      const framing = isChunked ? 'transfer-encoding: chunked' : `content-length: ${body.length}`;
      const lines = [
        `${method} ${target} HTTP/1.1`,
        'host: x',
        ...(json === undefined ? [] : [...type, framing]),
        ...headers,
      ];
      const head = Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1');
      const sent =
        json !== undefined && isChunked ? chunked(body, body.length > 1_000 ? body.length : size) : body;
      return printable({
        method,
        operation: isMeant && options.isElsewhere !== true ? operation : undefined,
        pieces: cut(Buffer.concat([head, sent]), cuts),
        json,
        isDescribed: options.isDescribed ?? false,
        isLast: false,
      });
    });
}

function chunked(body: Buffer, size: number): Buffer {
  const chunks = [];
  for (let start = 0; start < body.length; start += size) {
    const chunk = body.subarray(start, start + size);
    chunks.push(Buffer.from(`${chunk.length.toString(16)}\r\n`), chunk, Buffer.from('\r\n'));
  }
  return Buffer.concat([...chunks, Buffer.from('0\r\n\r\n')]);
}

function cut(bytes: Buffer, places: readonly number[]): readonly Buffer[] {
  const sorted = places.map((place) => place % (bytes.length + 1)).sort((one, other) => one - other);
  return [0, ...sorted].map((start, index) => bytes.subarray(start, sorted[index] ?? bytes.length));
}

/** Violations of HTTP itself; nothing follows them on the connection. */
function hostile({ operation, path, json = '{"amount":"1"}' }: Draft): fc.Arbitrary<GeneratedRequest> {
  const { length } = Buffer.from(json);
  const begin = (line = `${operation.method} ${path} HTTP/1.1`) =>
    `${line}\r\nhost: x\r\ncontent-type: application/json\r\n`;
  const whole = `${begin()}content-length: ${length}\r\n\r\n${json}`;
  const inChunks = `${begin()}transfer-encoding: chunked\r\n\r\n`;
  // Request lines to undocumented paths.
  const others = [
    ...[
      '*',
      'x',
      '\\',
      '/\u00e9',
      '/a b',
      'http://',
      'http://x/wallets',
      `/${'x'.repeat(20_000)}`,
      '#',
      '?',
    ].map((target) => begin(`${operation.method} ${target} HTTP/1.1`) + '\r\n'),
    ...['get', 'BREW', 'G\u0000T', '', ' GET', 'CONNECT', 'PRI'].map(
      (method) => begin(`${method} ${path} HTTP/1.1`) + '\r\n',
    ),
    'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
    '\u0016\u0003\u0001\u0002\u0000\u0001\u0000\u0001\u00fc\u0003\u0003',
  ];
  const texts = [
    // Half a request.
    ...[0.1, 0.3, 0.5, 0.7, 0.9].map((part) => whole.slice(0, Math.ceil(whole.length * part))),
    `${begin()}content-length: ${length + 5}\r\n\r\n${json}`,
    `${inChunks}${length.toString(16)}\r\n${json}`,
    // Lengths that are invalid, or not the body's.
    `${begin()}content-length: ${Math.max(0, length - 1)}\r\n\r\n${json}`,
    ...['-1', '+5', '0x10', '1e1', '5, 5', '99999999999999999999', ''].map(
      (text) => `${begin()}content-length: ${text}\r\n\r\n${json}`,
    ),
    `${begin()}content-length: ${length}\r\ncontent-length: ${length}\r\n\r\n${json}`,
    `${begin()}content-length: ${length}\r\ntransfer-encoding: chunked\r\n\r\n${length.toString(16)}\r\n${json}\r\n0\r\n\r\n`,
    ...['gzip', 'chunked, identity', 'gzip, chunked', 'xchunked'].map(
      (text) => `${begin()}transfer-encoding: ${text}\r\n\r\n0\r\n\r\n`,
    ),
    ...[
      'zz\r\n',
      '-1\r\n',
      `${length}\n${json}`,
      'ffffffffffffffff1\r\n',
      `5\r\n${json}`,
      `1;${'x'.repeat(20_000)}\r\n{`,
    ].map((text) => inChunks + text),
    // Headers.
    `${begin()}x: ${'y'.repeat(20_000)}\r\n\r\n`,
    `${begin()}${'a: b\r\n'.repeat(3_000)}\r\n`,
    ...[': x', 'x y: z', 'x : y', ' folded: x', 'x: \u0000', 'x: \r', 'no colon'].map(
      (line) => `${begin()}${line}\r\n\r\n`,
    ),
    ...['a b', 'x/y', '', 'x@y', ':80', '[::1'].map((host) => whole.replace('host: x', `host: ${host}`)),
    whole.replace('host: x\r\n', ''),
    whole.replace('host: x', 'host: x\r\nhost: y'),
    ...['HTTP/1.0', 'HTTP/2.0', 'HTTP/0.9', 'HTTP/1.2', 'HTTP/1', 'http/1.1', 'FTP/1.1', ''].map((version) =>
      whole.replace('HTTP/1.1', version),
    ),
    // More than is read.
    `${begin()}content-length: 70000\r\n\r\n${' '.repeat(70_000)}`,
    `${inChunks}${`1000\r\n${' '.repeat(4_096)}\r\n`.repeat(20)}0\r\n\r\n`,
    // A body that is not UTF-8.
    `${begin()}content-length: 14\r\n\r\n{"amount":"\u00ff"}`,
    // A request that nothing follows.
    `${whole}no request at all\r\n\r\n`,
    `${begin()}connection: close\r\ncontent-length: ${length}\r\n\r\n${json}${whole}`,
  ];
  return fc
    .oneof(
      { weight: 3, arbitrary: fc.constantFrom(...texts) },
      { weight: 1, arbitrary: fc.constantFrom(...others) },
    )
    .map((text) =>
      printable({
        method: operation.method,
        operation: others.includes(text) ? undefined : operation,
        // In one piece: a client that goes on sending after the last answer of a connection can lose it.
        pieces: [Buffer.from(text, 'latin1')],
        json,
        isDescribed: false,
        isLast: true,
      }),
    );
}

/** Shows what is sent in a counterexample. */
function printable(request: GeneratedRequest): GeneratedRequest {
  return { ...request, [fc.toStringMethod]: () => JSON.stringify(requestText(request)) } as GeneratedRequest;
}

/** What is sent, for people: of long values, the beginning and the end. */
export function requestText({ pieces }: GeneratedRequest): string {
  const text = Buffer.concat([...pieces]).toString('latin1');
  return text.length > 1_000 ? `${text.slice(0, 500)} … ${text.slice(-200)}` : text;
}
