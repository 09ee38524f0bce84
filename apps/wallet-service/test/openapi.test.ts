import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type TestService, startTestService, stopTestService } from './start-test-service.js';
import { anOwner, problem } from './wallet-client.js';

let service: TestService;

beforeAll(async () => {
  service = await startTestService();
});
afterAll(() => stopTestService(service));

interface Operation {
  readonly responses: Readonly<Record<string, { readonly description: string; readonly content: object }>>;
  readonly requestBody?: { readonly required: boolean };
  readonly parameters?: readonly { readonly name: string; readonly in: string; readonly required: boolean }[];
}

type Paths = Readonly<Record<string, Readonly<Record<string, Operation>>>>;

/** A schema that constrains texts. */
interface TextSchema {
  readonly pattern?: string;
  readonly format?: string;
  readonly example?: string;
}

/** Every schema in the document that has a pattern or describes a UUID. */
function textSchemas(node: unknown): readonly TextSchema[] {
  if (typeof node !== 'object' || node === null) return [];
  const schema = node as TextSchema;
  const inner = Object.values(node).flatMap(textSchemas);
  return typeof schema.pattern === 'string' || schema.format === 'uuid' ? [schema, ...inner] : inner;
}

function accepts({ pattern = '', format }: TextSchema, text: string): boolean {
  const isOfFormat = format !== 'uuid' || /^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/i.test(text);
  return isOfFormat && new RegExp(pattern, 'u').test(text);
}

describe('GET /openapi.json', () => {
  test('describes every operation with its answers and problems', async () => {
    const { status, body } = await service.client.get('/openapi.json');
    expect(status).toBe(200);
    expect(body['openapi']).toBe('3.1.0');
    const statuses = Object.entries(body['paths'] as Paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, { responses }]) => [
        `${method} ${path}`,
        Object.keys(responses).join(' '),
      ]),
    );
    expect(Object.fromEntries(statuses)).toEqual({
      'post /wallets': '201 400 408 413 415 417 422 429 431 500 503 504',
      'get /wallets': '200 400 408 417 429 431 500 503',
      'get /wallets/{id}': '200 304 400 404 408 412 417 429 431 500 503',
      'post /wallets/{id}/deposit': '200 204 400 404 408 409 412 413 415 417 422 429 431 500 503 504',
      'post /wallets/{id}/withdraw': '200 204 400 404 408 409 412 413 415 417 422 429 431 500 503 504',
      'post /wallets/{id}/close': '200 204 400 404 408 409 412 413 415 417 422 429 431 500 503 504',
      'get /wallets/{id}/events': '200 400 404 408 417 429 431 500 503',
      'post /transfers': '202 400 404 408 409 413 415 417 422 429 431 500 503 504',
      'get /transfers/{id}': '200 304 400 404 408 412 417 429 431 500 503',
      'get /health/live': '200 400 408 417 429 431 500',
      'get /health/ready': '200 400 408 417 429 431 500 503',
    });
  });

  test('has a schema for every reference', async () => {
    const { body } = await service.client.get('/openapi.json');
    const { schemas } = body['components'] as { readonly schemas: Readonly<Record<string, unknown>> };
    const references = [...JSON.stringify(body).matchAll(/"\$ref":"#\/components\/schemas\/(\w+)"/g)].map(
      ([, name]) => name,
    );
    expect(new Set(references)).toEqual(new Set(Object.keys(schemas)));
    expect(schemas['Deposit']).toMatchObject({
      required: ['amount'],
      additionalProperties: false,
      properties: { amount: { type: ['string', 'number'] } },
    });
    expect(schemas['NewWallet']).toMatchObject({ required: ['country', 'ownerId', 'currency'] });
  });

  test('uses only patterns valid in ECMA-262, without slashes and flags', async () => {
    const { body } = await service.client.get('/openapi.json');
    const patterns = textSchemas(body).flatMap(({ pattern }) => pattern ?? []);
    expect(patterns.length).toBeGreaterThan(0);
    for (const pattern of patterns) {
      expect(() => new RegExp(pattern, 'u')).not.toThrow();
      expect(pattern).not.toMatch(/^\/|\/[a-z]*$/);
    }
  });

  test('has patterns that accept its own examples, and every id of the service in upper and lower case', async () => {
    const { client } = service;
    const schemas = textSchemas((await client.get('/openapi.json')).body);
    const refusing = schemas.filter((schema) => !accepts(schema, schema.example ?? anOwner));
    expect(refusing).toEqual([]);
    const [source, dest] = await Promise.all([client.openWallet(), client.openWallet({ country: 'MX' })]);
    const sent = await client.post('/transfers', { sourceId: source.id, destId: dest.id, amount: '1' });
    const { body } = await client.get(`/wallets/${source.id}/events`);
    const events = body['items'] as readonly { readonly id: string; readonly actionId: string }[];
    const eventIds = events.flatMap(({ id, actionId }) => [id, actionId]);
    const ids = [source.id, dest.id, source.ownerId, sent.body['id'] as string, ...eventIds];
    const ofIds = schemas.filter(({ format }) => format === 'uuid');
    expect(ofIds.length).toBeGreaterThan(0);
    for (const schema of ofIds) {
      for (const id of ids) {
        expect([schema, id, accepts(schema, id), accepts(schema, id.toUpperCase())]).toEqual([
          schema,
          id,
          true,
          true,
        ]);
      }
    }
  });

  test('matches no text that the service refuses for one of its characters', async () => {
    const { client } = service;
    const { body } = await client.get('/openapi.json');
    const { schemas } = body['components'] as { readonly schemas: Readonly<Record<string, object>> };
    const { properties } = schemas['NewWallet'] as {
      readonly properties: Readonly<Record<string, TextSchema>>;
    };
    for (const name of ['country', 'currency']) {
      for (const text of ['\0', '\ud800']) {
        const wallet = { country: 'DE', currency: 'EUR', ownerId: anOwner, [name]: text };
        expect(await client.post('/wallets', wallet)).toMatchObject(problem(400, 'bad-request'));
        expect(accepts(properties[name] ?? {}, text)).toBe(false);
      }
    }
  });

  test('states which fields are required', async () => {
    const { body } = await service.client.get('/openapi.json');
    const paths = body['paths'] as Paths;
    expect(paths['/wallets/{id}/close']?.['post']?.requestBody?.required).toBe(false);
    expect(paths['/wallets/{id}/deposit']?.['post']?.requestBody?.required).toBe(true);
    const parameters = paths['/wallets']?.['get']?.parameters?.map((each) => [
      each.name,
      each.in,
      each.required,
    ]);
    expect(parameters).toEqual([
      ['ownerId', 'query', true],
      ['limit', 'query', false],
      ['cursor', 'query', false],
    ]);
  });
});

describe('GET /docs', () => {
  test('is a page whose files all come from the service', async () => {
    const page = await (await fetch(`${service.url}/docs`)).text();
    const files = [...page.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, file]) => file ?? '');
    expect(files).toHaveLength(4);
    for (const file of files) {
      expect(file).toMatch(/^\/docs\//);
      expect((await service.client.get(file)).status).toBe(200);
    }
    expect(await (await fetch(`${service.url}/docs/start.js`)).text()).toContain('/openapi.json');
  });
});

test('the client is generated from this document', async () => {
  const { body } = await service.client.get('/openapi.json');
  const client = new URL('../../../packages/wallet-client/openapi.json', import.meta.url);
  await expect(`${JSON.stringify(body, undefined, 2)}\n`).toMatchFileSnapshot(fileURLToPath(client));
});
