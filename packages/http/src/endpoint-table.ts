import { InvariantViolationError } from '@framework/core';

import type { Endpoint } from './exchange.js';

/** The endpoints of an API, by their methods and addresses. */
export class EndpointTable {
  /** Literal segments come before parameters, as every router must have them. */
  readonly endpoints: readonly Endpoint[];
  /** What the paths of each endpoint look like. */
  readonly #paths: readonly { readonly pattern: RegExp; readonly endpoint: Endpoint }[];
  /** The first segments of the paths that need a token, whether or not there is something behind them. */
  readonly #protected: ReadonlySet<string>;

  /** @throws InvariantViolationError `invariant-violation` for an address that routers would understand in different ways, or have twice */
  constructor(endpoints: readonly Endpoint[]) {
    this.endpoints = endpoints.toSorted((one, other) => (order(one) < order(other) ? -1 : 1));
    assertAddresses(this.endpoints);
    this.#paths = this.endpoints.map((endpoint) => ({ pattern: patternOf(endpoint.address), endpoint }));
    this.#protected = new Set(
      this.endpoints.filter(({ isPublic }) => !isPublic).map(({ address }) => firstSegment(address)),
    );
  }

  /** The endpoint of a method at a path, and the parameters in it; `undefined` if there is none. */
  find(method: string, path: string): FoundEndpoint | undefined {
    const wanted = method === 'HEAD' ? 'get' : method.toLowerCase();
    for (const { pattern, endpoint } of this.#paths) {
      if (endpoint.method !== wanted) continue;
      const match = pattern.exec(path);
      if (match !== null) return { endpoint, params: paramsOf(match.groups) };
    }
    return undefined;
  }

  /** The methods of a path, in upper case; none if there is nothing. */
  methodsOf(path: string): readonly string[] {
    const found = this.#paths.filter(({ pattern }) => pattern.test(path));
    const methods = found.flatMap(({ endpoint }) =>
      endpoint.method === 'get' ? ['GET', 'HEAD'] : [endpoint.method.toUpperCase()],
    );
    return [...new Set(methods)];
  }

  /** Whether a path, at which there may be nothing, is one of those that need a token. */
  isProtected(path: string): boolean {
    return this.#protected.has(firstSegment(path));
  }
}

/** An endpoint, with the parameters of a path. */
interface FoundEndpoint {
  readonly endpoint: Endpoint;
  readonly params: Readonly<Record<string, string>>;
}

/** Sorts literal segments before parameters. */
function order({ address }: Endpoint): string {
  return address.replaceAll(/\{\w+\}/g, '\u{10ffff}');
}

/** Refuses what the routers of the bindings would understand in different ways. */
function assertAddresses(endpoints: readonly Endpoint[]): void {
  const seen = new Set<string>();
  for (const { method, address } of endpoints) {
    if (!/^(\/|(\/([\w.~-]+|\{\w+\}))+)$/.test(address))
      throw new InvariantViolationError(
        `The address ${address} of a route must consist of segments that are a parameter, such as {id}, or letters, digits and -._~`,
      );
    const names = address.match(/\{\w+\}/g) ?? [];
    if (new Set(names).size < names.length)
      throw new InvariantViolationError(`The address ${address} of a route has a parameter twice`);
    const name = `${method} ${address.replaceAll(/\{\w+\}/g, '{}')}`;
    if (seen.has(name)) throw new InvariantViolationError(`Two routes have the address ${name}`);
    seen.add(name);
  }
}

/** Matches the paths of an address, whose parameters have no slash. */
function patternOf(address: string): RegExp {
  const literal = address.replaceAll(/[.*+?^$()|[\]\\]/g, String.raw`\$&`);
  return new RegExp(`^${literal.replaceAll(/\{(\w+)\}/g, '(?<$1>[^/]+)')}$`);
}

function paramsOf(groups: Readonly<Record<string, string>> = {}): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.entries(groups).map(([name, text]) => [name, decoded(text)]));
}

/** A text that is not encoded correctly is its own value, as in other routers. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function firstSegment(path: string): string {
  return path.split('/', 2)[1] ?? '';
}
