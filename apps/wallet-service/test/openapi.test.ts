import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type TestService, startTestService, stopTestService } from './start-test-service.js';

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

describe('GET /openapi.json', () => {
  it('describes every operation with its answers and problems', async () => {
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
      'post /wallets': '201 400 413 415 422 500 503 504',
      'get /wallets': '200 400 500 503',
      'get /wallets/{id}': '200 400 404 500 503',
      'post /wallets/{id}/deposit': '200 400 404 409 413 415 422 500 503 504',
      'post /wallets/{id}/withdraw': '200 400 404 409 413 415 422 500 503 504',
      'post /wallets/{id}/close': '200 400 404 409 413 415 422 500 503 504',
      'get /wallets/{id}/events': '200 400 404 500 503',
      'post /transfers': '202 400 404 409 413 415 422 500 503 504',
      'get /transfers/{id}': '200 400 404 500 503',
      'get /health/live': '200 500',
      'get /health/ready': '200 500 503',
    });
  });

  it('has a schema for everything that it refers to', async () => {
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

  it('says which fields are needed', async () => {
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
  it('is a page whose files all come from the service', async () => {
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
